"""DreamerV1 and DreamerV2 against stored numbers of the authors' code, case by case."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from synora.algorithms.dreamer.cells import NormGRUCell
from synora.algorithms.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from synora.algorithms.dreamer.imagination import Behaviour, imagine
from synora.algorithms.dreamer.import_official import convert
from synora.algorithms.dreamer.networks import scale_images
from synora.algorithms.dreamer.rssm import State
from synora.algorithms.dreamer.world_model import ReplayBatch, WorldModel, divergence
from synora.nn.distributions import (
    DiagonalGaussian,
    OneHotCategorical,
    TanhNormal,
    TruncatedNormal,
    balanced_kl_loss,
    bernoulli_log_prob,
    free_nats_loss,
    unit_normal_log_prob,
)
from synora.nn.returns import discount_weights, lambda_returns

# Numbers the files keep for comparison that are no output of the authors' code.
EXCUSED = {"port_weights_not_the_authors": "the V1 port's loss weights, one step late"}
# Scalars that repeat a constant, and where we keep it.
CONSTANTS = {
    "actor_ent": "actor_entropy",
    "actor_grad_mix": "actor_grad_mix",
    "discount": "discount",
    "discount_lambda": "lambda_",
    "discount_scale": "discount_scale",
    "layer_norm_eps": "layer_norm_eps",
    "min_std": "actor_min_std",
    "pcont_scale": "discount_scale",
}


def v1_config(c: dict[str, Any], **extra: Any) -> DreamerV1Config:
    return DreamerV1Config(
        deter_size=c["deter_size"], stoch_size=c["stoch_size"], hidden_size=c.get("hidden_size", c["deter_size"]),
        cnn_depth=c["cnn_depth"], units=c["num_units"], discount=c["discount"], lambda_=c["discount_lambda"],
        free_nats=c["free_nats"], kl_scale=c["kl_scale"], discount_scale=c["pcont_scale"], **extra,
    )  # fmt: skip


def v2_config(c: dict[str, Any], **extra: Any) -> DreamerV2Config:
    layers = dict.fromkeys(("reward_layers", "discount_layers", "critic_layers", "actor_layers"), c["layers"])
    continuous = {"actor_min_std": c["actor_min_std"], "actor_init_std": c["actor_init_std"]} if c["continuous"] else {}
    values: dict[str, Any] = dict(
        image_channels=c["channels"], deter_size=c["deter"], stoch_size=c["stoch"], class_size=c["discrete"],
        hidden_size=c["hidden"], cnn_depth=c["cnn_depth"], units=c["units"], discount=c["discount"],
        lambda_=c["discount_lambda"], kl_balance=c["kl_balance"], free_nats=c["kl_free"], kl_scale=c["kl_scale"],
        discount_scale=c["discount_scale"], actor_entropy=c["actor_ent"], actor_grad_mix=c["actor_grad_mix"],
        layer_norm_eps=c["layer_norm_eps"], predict_discount=c["pred_discount"],
        action_distribution="truncated_normal" if c["continuous"] else "onehot",
        actor_gradient="dynamics" if c["continuous"] else "reinforce", **layers, **continuous,
    )  # fmt: skip
    return DreamerV2Config(**(values | extra))


class Models(nn.Module):
    """Every network of one configuration, with the case's weights and gradients by the case's names."""

    def __init__(self, case: Any, config: DreamerConfig) -> None:
        super().__init__()
        self.case, self.config = case, config
        self.native = bool(case.meta.get("own_names"))
        self.world_model = WorldModel(config, case.config["action_size"])
        behaviour = Behaviour(config, case.config["action_size"])
        self.behaviour = behaviour
        state = self.rename(case.state)
        known = dict(self.named())
        assert not set(state) - set(known), f"no such parameters: {sorted(set(state) - set(known))}"
        with torch.no_grad():
            for name, value in state.items():
                assert known[name].shape == value.shape, name
                known[name].copy_(value)
        # A part is given whole or not at all: nothing is left at its random initialisation by accident.
        parts = {self.part(name) for name in state}
        missing = [name for name in known if self.part(name) in parts and name not in state]
        assert not missing or case.name.startswith(("v1_gru", "v2_gru", "v1_beh", "v2_beh")), missing
        for name in CONSTANTS:
            if hasattr(config, CONSTANTS[name]) and case.has(f"scalar.{name}"):
                case.check(f"scalar.{name}", getattr(config, CONSTANTS[name]))

    @staticmethod
    def part(name: str) -> str:
        return ".".join(name.split(".")[: 2 if name.startswith("world_model") else 1])

    def rename(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return dict(state) if self.native else convert(state, self.config)

    def named(self) -> list[tuple[str, nn.Parameter]]:
        own = list(self.world_model.named_parameters(prefix="world_model"))
        return own + list(self.behaviour.named_parameters())

    def check_grads(self, loss: Tensor, group: str = "", inputs: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Compare the stored gradients of one loss; return all gradients by our names."""
        parameters = {k: v for k, v in self.named() if v.requires_grad}
        leaves = parameters | (inputs or {})
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, retain_graph=True)
        grads = {k: torch.zeros_like(leaves[k]) if g is None else g for k, g in zip(leaves, found, strict=True)}
        for key in self.case.grads(group):
            full = f"grad.{group}.{key}" if group else f"grad.{key}"
            if self.native or (inputs and key in inputs):
                self.case.check(full, grads[key])
                continue
            # Stored gradients are moved to our layout, so that the comparison is column by column.
            ((name, want),) = self.rename({key: self.case.stored[full]}).items()
            self.case.check(full, grads[name], want)
        return {k: grads[k] for k in parameters}


def norm(grads: dict[str, Tensor], *prefixes: str) -> float:
    return math.sqrt(sum(float(g.double().square().sum()) for k, g in grads.items() if k.startswith(prefixes)))


def flat(x: Tensor) -> Tensor:
    return x.squeeze(-1) if x.shape[-1] == 1 else x


def check_conv(case: Any, models: Models) -> None:
    model = models.world_model
    obs = scale_images(case["image"])
    case.check("out.obs", obs[: case.stored["out.obs"].shape[0]])
    embed = model.encoder(obs)
    mean = model.decoder(case["feat"])
    log_prob = unit_normal_log_prob(mean, obs, event_dims=3)
    for name, value in {"embed": embed, "mean": mean, "log_prob": log_prob}.items():
        case.check(f"out.{name}", value)
    loss, objective = -log_prob.mean(), (embed * case["embed_weight"]).sum()
    case.check("scalar.image_loss", loss)
    case.check("scalar.embed_objective", objective)
    case.check("scalar.log_prob_constant", unit_normal_log_prob(obs[:1], obs[:1], event_dims=3)[0])
    case.check("scalar.squared_error_sum_first", (mean[0] - obs[0]).square().sum())
    models.check_grads(loss, "loss")
    models.check_grads(objective, "embed")


def check_v1_gru(case: Any, models: Models) -> None:
    cell: Any = models.world_model.rssm.cell
    gates = cell.gates(cell.input(case["x"]), cell.state(case["h"]))
    h = cell(case["x"], case["h"])
    for name, value in {"reset": gates.reset, "update": gates.update, "cand": gates.candidate, "h": h}.items():
        case.check(f"out.{name}", value)
    unrolled = cell.unroll(1, len(h))(0, case["x"], case["h"])
    for result in (h, unrolled):
        objective = (result * case["w"]).sum()
        case.check("scalar.objective", objective)
        models.check_grads(objective)


def check_v2_gru(case: Any, models: Models) -> None:
    cell: Any = models.world_model.rssm.cell
    projected = cell.project(case["x"], case["h"])
    normalised = cell.normalise(projected)
    gates = cell.gates(normalised)
    h = cell(case["x"], case["h"])
    port = NormGRUCell(case["x"].shape[1], case["h"].shape[1], 1e-5)
    port.load_state_dict(cell.state_dict())
    port_h = port(case["x"], case["h"])
    case.check("out.pre_norm", projected)
    case.check("out.post_norm", normalised)
    for name, value in {"reset": gates.reset, "update": gates.update, "cand": gates.candidate, "h": h}.items():
        case.check(f"out.{name}", value)
    case.check("out.port_h_with_eps_1e5", port_h)
    case.check("scalar.max_abs_difference_between_the_two_eps", (port_h - h).abs().max())
    unrolled = cell.unroll(1, len(h))(0, case["x"], case["h"])
    for result in (h, unrolled):
        objective = (result * case["w"]).sum()
        case.check("scalar.objective", objective)
        models.check_grads(objective)


def imagine_given(model: WorldModel, state: State, actions: Tensor, noise: Tensor) -> tuple[list[State], list[Any]]:
    states, priors = [], []
    for action, draw in zip(actions, noise, strict=True):
        state, prior = model.rssm.imagine_step(state, action, draw)
        states.append(state)
        priors.append(prior)
    return states, priors


def check_v1_rssm(case: Any, models: Models) -> None:
    model = models.world_model
    start = State(case["init_stoch"], case["init_deter"])
    observed = model.rssm.observe(case["embed"], case["action"], case["is_first"], start, noise=case["eps_post"])
    prior, post = observed.prior, observed.posterior
    assert isinstance(prior, DiagonalGaussian) and isinstance(post, DiagonalGaussian)
    states, priors = imagine_given(model, State(*(x[-1] for x in observed.state)), case["img_action"], case["img_eps"])
    kl = divergence(observed)
    outputs = {
        "prior_mean": prior.mean, "prior_std": prior.std, "prior_stoch": prior.sample(case["eps_prior"]),
        "post_mean": post.mean, "post_std": post.std, "post_stoch": observed.state.stoch,
        "deter": observed.state.deter, "feat": observed.state.features, "kl": kl,
        "prior_entropy": prior.entropy(), "post_entropy": post.entropy(),
        "img_mean": torch.stack([p.mean for p in priors]), "img_std": torch.stack([p.std for p in priors]),
        "img_stoch": torch.stack([s.stoch for s in states]), "img_deter": torch.stack([s.deter for s in states]),
    }  # fmt: skip
    for name, value in outputs.items():
        case.check(f"out.{name}", value)
    loss = model.kl_loss(observed)
    case.check("scalar.kl_loss", loss)
    case.check("scalar.kl_mean", kl.mean())
    clipped = free_nats_loss(kl, models.config.free_nats, average_first=False)
    case.check("scalar.kl_mean_of_clipped_elements_not_the_authors", clipped)
    inactive = free_nats_loss(kl, case.config["free_nats_inactive"])
    case.check("scalar.kl_loss_inactive", inactive)
    models.check_grads(loss)
    nothing = torch.autograd.grad(inactive, list(model.rssm.parameters()), allow_unused=True)
    assert all(g is None or not g.any() for g in nothing)


def check_v2_rssm(case: Any, models: Models) -> None:
    model = models.world_model
    start = State(case["init_stoch"].flatten(-2), case["init_deter"])
    observed = model.rssm.observe(case["embed"], case["action"], case["is_first"], start, noise=case["gumbel_post"])
    prior, post = observed.prior, observed.posterior
    assert isinstance(prior, OneHotCategorical) and isinstance(post, OneHotCategorical)
    last = State(*(x[-1] for x in observed.state))
    states, priors = imagine_given(model, last, case["img_action"], case["img_gumbel"])
    stoch = torch.stack([s.stoch for s in states])
    outputs = {
        "deter": observed.state.deter, "feat": observed.state.features, "post_logit": post.logits,
        "prior_logit": prior.logits, "post_index": post.sample_index(case["gumbel_post"]),
        "prior_index": prior.sample_index(case["gumbel_prior"]), "kl": divergence(observed),
        "post_entropy": post.entropy(), "prior_entropy": prior.entropy(), "img_stoch": stoch,
        "img_deter": torch.stack([s.deter for s in states]), "img_logit": torch.stack([p.logits for p in priors]),
        "img_index": stoch.unflatten(-1, case["img_gumbel"].shape[-2:]).argmax(-1),
    }  # fmt: skip
    for name, value in outputs.items():
        case.check(f"out.{name}", value)
    loss = model.kl_loss(observed)
    objective = (observed.state.features * case["feat_weight"]).sum()
    case.check("scalar.kl_loss", loss)
    case.check("scalar.kl_mean", divergence(observed).mean())
    case.check("scalar.feat_objective", objective)
    models.check_grads(loss, "kl")
    models.check_grads(objective, "feat")


def check_v1_kl(case: Any, _: Any) -> None:
    names = ("post_mean", "post_std", "prior_mean", "prior_std")
    leaves = {name: case[name].clone().requires_grad_() for name in names}
    post, prior = DiagonalGaussian(*list(leaves.values())[:2]), DiagonalGaussian(*list(leaves.values())[2:])
    kl = post.kl(prior)
    loss = free_nats_loss(kl, case.config["free_nats"])
    case.check("out.kl", kl)
    case.check("scalar.kl_mean", kl.mean())
    case.check("scalar.kl_loss", loss)
    clipped = free_nats_loss(kl, case.config["free_nats"], average_first=False)
    case.check("scalar.kl_mean_of_clipped_elements_not_the_authors", clipped)
    for name, grad in zip(names, torch.autograd.grad(loss, list(leaves.values())), strict=True):
        case.check(f"grad.{name}", grad)


def check_v2_kl(case: Any, _: Any) -> None:
    leaves = {name: case[name].clone().requires_grad_() for name in ("post_logit", "prior_logit")}
    post, prior = (OneHotCategorical(leaf, event_dims=1) for leaf in leaves.values())
    case.check("out.kl", post.kl(prior))
    case.check("scalar.kl_mean", post.kl(prior).mean())
    balance = case.config["kl_balance"]
    for free in case.config["kl_free_values"]:
        loss = balanced_kl_loss(post, prior, balance=balance, free_nats=free)
        case.check(f"scalar.kl_loss_free_{free:g}", loss)
        for name, grad in zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True):
            case.check(f"grad.free_{free:g}.{name}", grad)
    free = case.config["kl_free_per_element"]
    loss = balanced_kl_loss(post, prior, balance=balance, free_nats=free, average_first=False)
    case.check("scalar.kl_loss_free_avg_false", loss)


def check_v1_heads(case: Any, models: Models) -> None:
    world, critic, feat = models.world_model, models.behaviour.critic, case["feat"]
    assert world.discount is not None
    reward, value, logit = world.reward(feat), critic(feat), world.discount(feat)
    log_probs = {
        "reward": unit_normal_log_prob(reward, flat(case["reward"])),
        "value": unit_normal_log_prob(value, flat(case["value_target"])),
        "pcont": bernoulli_log_prob(logit, flat(case["pcont_target"])),
    }
    case.check("out.reward_mean", reward)
    case.check("out.value_mean", value)
    case.check("out.pcont_logit", logit)
    case.check("out.pcont_mean", world.predict_discount(feat))
    for name, log_prob in log_probs.items():
        case.check(f"out.{name}_log_prob", log_prob)
    means = {name: log_prob.mean() for name, log_prob in log_probs.items()}
    loss = -(means["reward"] + means["value"] + models.config.discount_scale * means["pcont"])
    case.check("scalar.loss", loss)
    models.check_grads(loss)


def check_v2_heads(case: Any, models: Models) -> None:
    world, behaviour, feat = models.world_model, models.behaviour, case["feat"]
    assert world.discount is not None and behaviour.target_critic is not None
    target, discount_target = (
        world.reward_target(flat(case["raw_reward"])),
        world.discount_target(flat(case["terminal"])),
    )
    reward, value, logit = world.reward(feat), behaviour.critic(feat), world.discount(feat)
    log_probs = {
        "reward": unit_normal_log_prob(reward, target),
        "discount": bernoulli_log_prob(logit, discount_target),
        "value": unit_normal_log_prob(value, flat(case["value_target"])),
    }
    outputs = {
        "reward_target": target, "reward_mean": reward, "discount_target": discount_target, "discount_logit": logit,
        "discount_mean": world.predict_discount(feat), "value_mean": value,
        "target_value": behaviour.target_critic(feat),
    }  # fmt: skip
    outputs |= {f"{name}_log_prob": log_prob for name, log_prob in log_probs.items()}
    for name, output in outputs.items():
        case.check(f"out.{name}", output)
    means = {name: log_prob.mean() for name, log_prob in log_probs.items()}
    loss = -(means["reward"] + models.config.discount_scale * means["discount"] + means["value"])
    case.check("scalar.loss", loss)
    models.check_grads(loss)


def check_v1_actor(case: Any, models: Models) -> None:
    actor: Any = models.behaviour.actor
    policy: TanhNormal = actor.policy(actor(case["feat"]))
    drawn = policy.sample_with_inverse(case["eps"])
    draws = policy.sample_with_inverse(case["entropy_eps"])
    case.check("out.mean", policy.base.mean)
    case.check("out.std", policy.base.std)
    case.check("out.pre_tanh", drawn.pre_tanh)
    case.check("out.action", drawn.action)
    remembered = -policy.log_prob_pre_tanh(draws.pre_tanh).mean(0)
    case.check("out.entropy_remembered", remembered)
    case.check("out.entropy_clipped_inverse", policy.entropy(case["entropy_eps"]))
    case.check("out.log_prob_remembered", policy.log_prob_pre_tanh(drawn.pre_tanh))
    case.check("out.log_prob_clipped_inverse", policy.log_prob(drawn.action))
    case.check("out.mode", policy.mode(case["mode_eps"]))
    case.check("out.mode_index", policy.best(policy.sample(case["mode_eps"])))
    case.check("scalar.raw_init_std", actor.raw_init_std)
    case.check("scalar.std_mean", policy.base.std.mean())
    case.check("scalar.fraction_exactly_saturated", (drawn.action.abs() == 1).float().mean())
    if not case.has("out.given_log_prob"):
        return
    given = policy.log_prob(case["given_action"])
    for log_prob in (policy.log_prob(drawn.action), policy.log_prob_pre_tanh(drawn.pre_tanh)):
        case.check("out.log_prob", log_prob)
    for entropy in (remembered, policy.entropy(case["entropy_eps"])):
        case.check("out.entropy", entropy)
    case.check("out.given_log_prob", given)
    case.check("out.edge_log_prob", policy.log_prob(case["edge_action"]))
    objective = (drawn.action * case["w"]).sum()
    case.check("scalar.sample_objective", objective)
    case.check("scalar.given_log_prob_sum", given.sum())
    difference = (remembered - policy.entropy(case["entropy_eps"])).abs().max()
    case.check("scalar.max_abs_entropy_difference_if_the_inverse_is_recomputed", difference)
    models.check_grads(objective, "sample")
    models.check_grads(given.sum(), "log_prob")


def check_onehot_actor(case: Any, models: Models) -> None:
    actor: Any = models.behaviour.actor
    policy: OneHotCategorical = actor.policy(actor(case["feat"]))
    action = policy.sample(case["gumbel"])
    given, entropy = policy.log_prob(case["given_action"]), policy.entropy()
    outputs = {
        "normalised_logit": policy.log_probs, "prob": policy.probs, "action": action,
        "action_index": policy.sample_index(case["gumbel"]), "mode": actor.greedy(policy),
        "given_log_prob": given, "entropy": entropy,
    }  # fmt: skip
    for name, value in outputs.items():
        case.check(f"out.{name}", value)
    sampled = (action * case["w"]).sum()
    objective = given.sum() + models.config.actor_entropy * entropy.sum()  # type: ignore[attr-defined]
    case.check("scalar.sample_objective", sampled)
    case.check("scalar.log_prob_entropy_objective", objective)
    models.check_grads(sampled, "sample")
    models.check_grads(objective, "log_prob_entropy")


def check_truncated_actor(case: Any, models: Models) -> None:
    actor: Any = models.behaviour.actor
    policy: TruncatedNormal = actor.policy(actor(case["feat"]))
    action = actor.sample(policy, case["uniform"])
    given, entropy = policy.log_prob(case["given_action"]), policy.entropy()
    outputs = {
        "loc": policy.loc, "std": policy.std, "action": action, "log_prob": policy.log_prob(action),
        "given_log_prob": given, "entropy": entropy, "mean": policy.mean,
    }  # fmt: skip
    for name, value in outputs.items():
        case.check(f"out.{name}", value)
    assert torch.equal(actor.greedy(policy), policy.loc)
    objective = (action * case["w"]).sum()
    pathwise = (policy.sample(case["uniform"], pathwise=True) * case["w"]).sum()
    case.check("scalar.sample_objective", objective)
    case.check("scalar.log_prob_objective", given.sum())
    case.check("scalar.entropy_objective", entropy.sum())
    models.check_grads(objective, "sample_location_scale")
    models.check_grads(pathwise, "sample")
    models.check_grads(given.sum(), "log_prob")
    models.check_grads(entropy.sum(), "entropy")


def check_lambda_return(case: Any, _: Any) -> None:
    v1 = case.name.startswith("v1")
    discount, lambda_ = case["pcont" if v1 else "discount"], case.config["discount_lambda"]
    name = "returns" if v1 else "target"
    for suffix, mix in (("", lambda_), ("_lambda0", 0.0), ("_lambda1", 1.0)):
        case.check(f"out.{name}{suffix}", lambda_returns(case["reward"], case["value"], discount, mix))
    weights = discount_weights(discount)
    case.check("out.weights" if v1 else "out.weight", weights[:-1] if v1 else weights)
    case.check("scalar.discount_lambda", lambda_)
    returns = lambda_returns(case["reward"], case["value"], discount, lambda_)
    case.check("scalar.actor_loss", -(weights[:-1] * returns).mean())


def check_v1_world_model(case: Any, models: Models) -> None:
    batch = ReplayBatch(case["image"], case["action"], flat(case["reward"]), 1 - flat(case["discount"]))
    out = models.world_model(batch, noise=case["eps_post"])
    prior, post = out.observed.prior, out.observed.posterior
    outputs = {
        "embed": out.embed, "feat": out.observed.state.features, "kl": out.kl, "post_mean": post.mean,
        "post_std": post.std, "prior_mean": prior.mean, "prior_std": prior.std,
        "image_log_prob": out.log_probs["image"], "reward_log_prob": out.log_probs["reward"],
        "pcont_log_prob": out.log_probs["discount"],
    }  # fmt: skip
    for name, value in outputs.items():
        case.check(f"out.{name}", value)
    for name, term in {"image": "image", "reward": "reward", "pcont": "discount", "kl": "kl"}.items():
        case.check(f"scalar.{name}_loss", out.terms[term])
    case.check("scalar.kl_mean", out.kl.mean())
    case.check("scalar.model_loss", out.loss)
    grads = models.check_grads(out.loss)
    case.check("scalar.grad_norm_before_clip", norm(grads, "world_model"))
    models.world_model.discount = None
    plain = models.world_model(batch, noise=case["eps_post"])
    case.check("scalar.model_loss_without_pcont", plain.loss)


def check_v2_world_model(case: Any, models: Models) -> None:
    batch = ReplayBatch(*(case[name] for name in ("image", "action", "raw_reward", "terminal", "is_first")))
    out = models.world_model(batch, noise=case["gumbel_post"])
    prior, post, state = out.observed.prior, out.observed.posterior, out.observed.state
    outputs = {
        "embed": out.embed, "feat": state.features, "deter": state.deter, "kl": out.kl, "post_logit": post.logits,
        "prior_logit": prior.logits, "post_index": post.sample_index(case["gumbel_post"]),
        "prior_index": prior.sample_index(case["gumbel_prior"]), "image_log_prob": out.log_probs["image"],
        "reward_log_prob": out.log_probs["reward"], "discount_log_prob": out.log_probs["discount"],
    }  # fmt: skip
    for name, value in outputs.items():
        case.check(f"out.{name}", value)
    case.check("scalar.image_loss", out.terms["image"])
    case.check("scalar.reward_loss", out.terms["reward"])
    case.check("scalar.kl_loss_unscaled", out.terms["kl"])
    case.check("scalar.kl_mean", out.kl.mean())
    case.check("scalar.discount_loss_unscaled", out.terms["discount"])
    case.check("scalar.discount_loss_scaled", models.config.discount_scale * out.terms["discount"])
    case.check("scalar.model_loss", out.loss)
    grads = models.check_grads(out.loss)
    case.check("scalar.grad_norm_before_clip", norm(grads, "world_model"))
    # The DMC form on the same batch and weights.
    dmc = DreamerV2Config.PRESETS["dmc_vision"]
    for name in ("reward_transform", "kl_scale", "free_nats"):
        setattr(models.config, name, dmc[name])
    models.world_model.discount = None
    plain = models.world_model(batch, noise=case["gumbel_post"])
    case.check("scalar.dmc_model_loss", plain.loss)
    case.check("scalar.dmc_kl_loss", plain.terms["kl"])
    case.check("scalar.dmc_reward_loss", plain.terms["reward"])


def check_v1_actor_critic(case: Any, models: Models) -> None:
    feat = case["feat"].clone().requires_grad_()
    out = models.behaviour.losses_v1(models.world_model, feat)
    for name in ("reward", "value", "returns", "weights"):
        case.check(f"out.{name}", out.tensors[name])
    case.check("out.pcont", out.tensors["discount"])
    case.check("scalar.actor_loss", out.actor_loss)
    case.check("scalar.value_loss", out.critic_loss)
    models.check_grads(out.actor_loss, "actor_loss", {"feat": feat})
    models.check_grads(out.critic_loss, "value_loss")


def check_v2_actor_critic(case: Any, models: Models) -> None:
    config: Any = models.config
    behaviour = models.behaviour
    for mode in ("reinforce", "dynamics", "both"):
        config.actor_gradient = mode
        feat = case["feat"].clone().requires_grad_()
        policy = behaviour.actor.policy(behaviour.actor(feat[:-2].detach()))
        out = behaviour.losses_v2(models.world_model, feat, case["action"][1:-1], policy, case["terminal"])
        check_v2_tensors(case, out.tensors)
        case.check("out.policy_log_prob", out.tensors.get("log_prob", case.stored["out.policy_log_prob"]))
        case.check(f"scalar.actor_loss_{mode}", out.actor_loss)
        case.check("scalar.critic_loss", out.critic_loss)
        models.check_grads(out.actor_loss, mode, {"feat": feat})
        models.check_grads(out.critic_loss, "critic")


def check_v2_tensors(case: Any, tensors: dict[str, Tensor]) -> None:
    names = {"target_value": "value", "target": "returns", "weight": "weights"}
    for name in ("reward", "target_value", "discount", "target", "weight", "entropy", "advantage"):
        case.check(f"out.{name}", tensors[names.get(name, name)])


def check_v1_behaviour(case: Any, models: Models) -> None:
    start = State(case["start_stoch"], case["start_deter"])
    models.config.horizon = len(case["action_eps"])
    noise = {"action_noise": case["action_eps"], "state_noise": case["prior_eps"]}
    rollout = imagine(
        models.world_model, models.behaviour.actor, start, models.config.horizon, through_dynamics=True, **noise
    )
    case.check("out.action", rollout.actions)
    case.check("out.stoch", rollout.states.stoch[1:])
    case.check("out.deter", rollout.states.deter[1:])
    case.check("out.feat", rollout.features[1:])
    out = models.behaviour(models.world_model, start, **noise)
    for name in ("reward", "value", "returns", "weights"):
        case.check(f"out.{name}", out.tensors[name])
    case.check("scalar.actor_loss", out.actor_loss)
    case.check("scalar.value_loss", out.critic_loss)
    grads = models.check_grads(out.actor_loss, "actor_loss")
    assert norm(grads, "world_model", "critic") == 0
    case.check("scalar.actor_grad_norm", norm(grads, "actor"))
    grads = models.check_grads(out.critic_loss, "value_loss")
    assert norm(grads, "world_model", "actor") == 0
    case.check("scalar.value_grad_norm", norm(grads, "critic"))


def check_v2_behaviour(case: Any, models: Models) -> None:
    config: Any = models.config
    actor: Any = models.behaviour.actor
    start = State(case["start_stoch"].flatten(-2), case["start_deter"])
    actions = case["uniform_action" if case.config["continuous"] else "gumbel_action"]
    config.horizon = len(actions)
    noise = {"action_noise": actions, "state_noise": case["gumbel_prior"]}
    variants = ["dynamics_location_scale", "dynamics"] if case.config["continuous"] else ["reinforce", "dynamics"]
    for variant in variants:
        config.actor_gradient = variant.removesuffix("_location_scale")
        actor.pathwise = variant == "dynamics"
        through = config.actor_gradient != "reinforce"
        rollout = imagine(models.world_model, actor, start, config.horizon, through_dynamics=through, **noise)
        case.check("out.feat", rollout.features)
        zero = torch.zeros_like(rollout.actions[:1])
        case.check("out.action", torch.cat([zero, rollout.actions]))
        out = models.behaviour(models.world_model, start, case["terminal"], **noise)
        check_v2_tensors(case, out.tensors)
        case.check(f"scalar.actor_loss_{config.actor_gradient}", out.actor_loss)
        case.check("scalar.critic_loss", out.critic_loss)
        grads = models.check_grads(out.actor_loss, variant)
        assert norm(grads, "world_model", "critic") == 0
        case.check(f"scalar.actor_grad_norm_{variant}", norm(grads, "actor"))
        grads = models.check_grads(out.critic_loss, "critic")
        assert norm(grads, "world_model", "actor") == 0


Check = Callable[[Any, Any], None]
PCONT = {"predict_discount": True}
# By the beginning of the file's name; the longest match counts, so `v1_rssm_b.json` is checked as `v1_rssm`.
CHECKS: dict[str, tuple[Check, Callable[..., DreamerConfig] | None, dict[str, Any]]] = {
    "v1_conv": (check_conv, v1_config, {}),
    "v1_gru_cell": (check_v1_gru, v1_config, {}),
    "v1_rssm": (check_v1_rssm, v1_config, {}),
    "v1_kl": (check_v1_kl, None, {}),
    "v1_heads": (check_v1_heads, v1_config, PCONT),
    "v1_actor": (check_v1_actor, v1_config, {}),
    "v1_actor_saturated": (check_v1_actor, v1_config, {}),
    "v1_lambda_return": (check_lambda_return, None, {}),
    "v1_world_model_loss": (check_v1_world_model, v1_config, PCONT),
    "v1_actor_critic_loss": (check_v1_actor_critic, v1_config, PCONT),
    "v1_behaviour": (check_v1_behaviour, v1_config, {}),
    "v2_conv": (check_conv, v2_config, {}),
    "v2_gru_cell": (check_v2_gru, v2_config, {}),
    "v2_rssm": (check_v2_rssm, v2_config, {}),
    "v2_kl_balance": (check_v2_kl, None, {}),
    "v2_heads": (check_v2_heads, v2_config, {}),
    "v2_actor_onehot": (check_onehot_actor, v2_config, {}),
    "v2_actor_trunc_normal": (check_truncated_actor, v2_config, {}),
    "v2_lambda_return": (check_lambda_return, None, {}),
    "v2_world_model_loss": (check_v2_world_model, v2_config, {}),
    "v2_actor_critic_loss": (check_v2_actor_critic, v2_config, {}),
    "v2_behaviour_onehot": (check_v2_behaviour, v2_config, {}),
    "v2_behaviour_trunc_normal": (check_v2_behaviour, v2_config, {}),
}


@pytest.mark.parity("dreamer")
def test_stored_numbers(case: Any) -> None:
    names = [name for name in CHECKS if case.name == name or case.name.startswith(f"{name}_")]
    assert names, f"no check for {case.path}"
    check, make_config, extra = CHECKS[max(names, key=len)]
    models = Models(case, make_config(case.config, **extra)) if make_config else None
    check(case, models)
    case.finish(EXCUSED)
