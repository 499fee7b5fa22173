"""Stop signals: a flag, handlers put back, and a second Ctrl-C that means it."""

import os
import signal
import threading

import pytest

from synora.runtime.signals import StopSignals

NUMBERS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_sets_the_flag(number: signal.Signals) -> None:
    with StopSignals() as signals:
        assert signals.requested is None
        os.kill(os.getpid(), number)
        assert signals.requested == number.name
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.requested == number.name, "the first one is the reason"


def test_handlers_are_put_back() -> None:
    def mine(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGUSR2, mine)
    try:
        found = [signal.getsignal(number) for number in NUMBERS]
        with pytest.raises(ZeroDivisionError), StopSignals():
            assert signal.getsignal(signal.SIGUSR2) is not mine
            raise ZeroDivisionError
        assert [signal.getsignal(number) for number in NUMBERS] == found
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_second_interrupt_leaves_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.requested == "SIGTERM"
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second one must not return")


def test_other_threads_install_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    found: list[object] = []

    def work() -> None:
        with StopSignals() as signals:
            found.extend([signal.getsignal(signal.SIGTERM), signals.requested])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [before, None]


def test_forked_workers_die_of_signals_as_before() -> None:
    with StopSignals() as signals:
        before = signal.getsignal(signal.SIGTERM)
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
        assert signals.requested is None
        assert signal.getsignal(signal.SIGTERM) == before
