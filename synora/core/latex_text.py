"""Plain text as LaTeX prints it literally. Torch-free."""

# ruff: noqa: RUF001 - the characters are what this is about

from __future__ import annotations

import re
import unicodedata

# In the fonts of OT1, LaTeX's default, < > | are other glyphs.
_LATEX = {
    "\x00": "{}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\`{}",
    '"': "''",
    **{char: "\\" + char for char in "_%&#${}"},
    "\u00a0": "~",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "∞": r"$\infty$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "²": "$^{2}$",
    "³": "$^{3}$",
    "°": r"$^{\circ}$",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "§": r"\S{}",
    **{"ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}"},
    **{"ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}"},
    **{"µ": r"$\mu$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\epsilon$"},
    **{"η": r"$\eta$", "θ": r"$\theta$", "λ": r"$\lambda$", "μ": r"$\mu$", "π": r"$\pi$", "σ": r"$\sigma$"},
    **{"τ": r"$\tau$", "φ": r"$\phi$", "ω": r"$\omega$", "Δ": r"$\Delta$", "Σ": r"$\Sigma$"},
}
# Combining characters that every font of LaTeX can put on a letter.
_ACCENTS = {
    **{"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u"},
    **{"\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c", "\u0323": "d"},
}
# Categories of characters that no line of a file holds.
_REPLACED = {"Cc": " ", "Zl": " ", "Zp": " ", "Cs": "\ufffd"}
_MINUS = re.compile(r"(?<![\w.)\-])-(?=\.?\d)")


def escape_latex(text: str) -> str:
    """Return plain text such that LaTeX prints it literally, a hyphen before a number as a minus sign."""
    text = _MINUS.sub("−", one_line(text))
    text = re.sub("-(?=-)", "-\x00", unicodedata.normalize("NFC", text))  # two hyphens would become a dash
    return "".join(map(_latex_char, text)).strip()


def _latex_char(char: str) -> str:
    if char in _LATEX:
        return _LATEX[char]
    if char.isascii():
        return char
    parts = unicodedata.normalize("NFD", char)
    letter, mark = parts[0], parts[1:]
    if letter.isascii() and letter.isalpha() and mark in _ACCENTS:
        letter = rf"\{letter}{{}}" if letter in "ij" and mark not in "\u0327\u0323" else letter
        return rf"\{_ACCENTS[mark]}{{{letter}}}"
    if unicodedata.category(char) in ("Cf", "Mn"):  # joiners, text directions, marks of letters we do not have
        return ""
    return f"[U+{ord(char):04X}]"


def one_line(text: str) -> str:
    """Return text without line breaks and other control characters, which would end a row, and lone surrogates."""
    return "".join(_REPLACED.get(unicodedata.category(char), char) for char in text)
