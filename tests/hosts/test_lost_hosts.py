"""A step that takes its hosts along, one after the other: it ends as the cause of that, and others do not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, Phase, ProcedureFailed, ProcedureManager
from actorproc.cli.main import main
from tests.hosts.journalled import Eater, Noted
from tests.hosts.test_end_to_end import Program, noted
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes
PATIENCE = 3.0
HOSTS = 3


class Machines:
    """Three machines, whose agents are started again when they are gone, as Kubernetes does."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self.ended: list[Program] = []
        self.running = [self._start() for _ in range(HOSTS)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_running)
        self._thread.start()

    def _start(self) -> Program:
        options = ("--path", self._url, "-n", "2", "--label", "big")
        return Program(self._folder, "worker", "tests.hosts.journalled", *options)

    def _keep_running(self) -> None:
        while not self._over.wait(0.05):
            for place, program in enumerate(self.running):
                if program.process.poll() is not None:
                    self.ended.append(program)
                    self.running[place] = self._start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(BOUND)
        for program in (*self.running, *self.ended):
            program.end()


def test_a_step_that_takes_its_host_along_takes_four_at_most_and_others_complete(url, tmp_path, capsys):
    journal = tmp_path / "journal"
    config = Config(lease=1.0, host_patience=PATIENCE, spares=0, allow_any_filesystem=True)
    with ProcedureManager(url, procedures=[Noted, Eater], workers=1, config=config) as manager:
        machines = Machines(tmp_path, url)
        try:
            wait_until(lambda: len(manager._tree.hosts()) == HOSTS)
            eater = manager.submit(Eater(str(journal)))
            others = [manager.submit(Noted(str(journal), 40, 0.05)) for _ in range(6)]
            lone = []

            def is_over() -> bool:
                info = eater.info()
                if info.phase is Phase.QUEUED and "runs alone" in str(info.reason) and not lone:
                    main(["why", info.id, "--path", url])
                    said = capsys.readouterr().out
                    if "runs step" not in said:  # it may have got its host meanwhile
                        lone.append((info, said))
                return info.phase is Phase.DONE

            wait_until(is_over)
            with pytest.raises(ProcedureFailed) as caught:
                eater.result(BOUND)
            results = [handle.result(BOUND) for handle in others]
        finally:
            machines.close()
        begun = [entry for entry in noted(journal) if entry[:2] == ["begin", eater.id]]
        assert len(begun) == 4, "it was begun on four hosts, and no more"
        assert len({parent for *_, parent in begun}) == len(machines.ended) == 4
        last = begun[-1][-1]
        after = noted(journal)[noted(journal).index(begun[-1]) :]
        assert [entry for entry in after if entry[-1] == last and entry[1] != eater.id] == [], "it had that for itself"
        info = eater.info()
        assert (info.errors, info.crashes) == (0, 0)
        assert "its host was lost for the 4th time in a row in step 1" in str(caught.value)
        assert "it ran alone there" in str(caught.value)
        assert [entry for entry in noted(journal) if entry[:2] == ["undone", eater.id]], (
            "its procedure is undone as after any failure"
        )
        assert results == [40] * len(others)
        for handle in others:
            assert (handle.info().errors, handle.info().crashes) == (0, 0)
        if lone:
            (info, said), *_ = lone
            assert info.host_losses == 3
            assert "its host was lost three times, so it runs alone" in said
