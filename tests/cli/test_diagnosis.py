"""What ``doctor`` finds out of a directory that it cannot look into."""

from __future__ import annotations

from actorproc.cli.doctor.diagnosis import diagnose


def test_a_directory_that_cannot_be_looked_into_is_a_finding():
    report = diagnose("x" * 300)  # root may look everywhere, but a name has a length

    (finding,) = (one for one in report["findings"] if one["severity"] == "damage")
    assert "cannot look into" in finding["says"]
    assert "File name too long; run as the user it belongs to" in finding["says"]
    assert not report["ok"]


def test_a_file_in_the_place_of_a_store_is_none(tmp_path):
    (tmp_path / "state").touch()

    assert any("there is no store" in one["says"] for one in diagnose(str(tmp_path / "state"))["findings"])


def test_the_commands_of_a_finding_can_be_pasted_whatever_the_place_is_called(tmp_path):
    place = tmp_path / "a shop"
    place.mkdir(mode=0o755)

    commands = [one["command"] for one in diagnose(str(place))["findings"]]

    assert f"chmod go-rwx '{place}'" in commands
    assert f"actorproc run MODULE --path '{place}'" in commands
