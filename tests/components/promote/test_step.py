"""The promote step on real folders: what the store holds afterwards, also when runs race or die."""

import hashlib
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.champion import champion_model, read_champion
from components.errors import InvalidConfig, NotPromotable
from components.evaluation import ChampionScore, Evaluation, write_evaluation
from components.model_files import model_digest, read_model
from components.promote.model_store import locked
from components.promote.step import PromoteConfig, Promotion, promote

ROOT = Path(__file__).parents[3]
EVALUATION = Evaluation(
    rows=1000,
    positives=250,
    click_rate=0.25,
    auc=0.78,
    auc_reason="",
    log_loss=0.47,
    log_loss_reason="",
    normalized_entropy=0.84,
    constant_log_loss=0.5623,
    model_digest="",
    data_digest="d" * 64,
    champion=None,
    warnings=("3 rows rejected",),
    roc=(),
    calibration=(),
)


def write_model(model: Path, content: str, **changes: Any) -> Path:
    """A model folder as promote sees it: files and their digests. Nothing here is ever loaded."""
    (model / "saved_model" / "variables").mkdir(parents=True)
    (model / "saved_model" / "saved_model.pb").write_text(content)
    (model / "saved_model" / "variables" / "variables.index").write_text("index")
    (model / "weights.npz").write_text(content * 2)
    files = {
        path.relative_to(model).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(model.rglob("*"))
        if path.is_file()
    }
    card = {
        "format_version": 1,
        "strategy": "horovod",
        "rank": 0,
        "world_size": 2,
        "step": 10,
        "examples": 1000,
        "field_size": 3,
        "feature_size": 50,
        "id_base": 0,
        "data_digest": "d" * 64,
        "config": {},
        "parameter_checksum": "00",
        "ranks_agreed": True,
        "metrics": {"final_loss": 0.5},
        "files": files,
    }
    (model / "model.json").write_text(json.dumps({**card, **changes}))
    return model


class Place:
    """A store, and models that come to it one after another."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, root / "models"
        self.out, self.report = root / "out" / "promotion.json", root / "out" / "report.html"

    def candidate(self, name: str, auc: float = 0.78, **changes: Any) -> tuple[Path, Path]:
        """A model and its evaluation against the champion in force now, which scores 0.78."""
        model = write_model(self.root / name, name, **changes)
        champion = read_champion(self.store, "deepfm")
        score = None
        if champion:
            score = ChampionScore(version=champion.version, auc=0.78, auc_reason="", log_loss=0.47, auc_difference=auc - 0.78)
        evaluation = self.root / f"{name}.json"
        write_evaluation(evaluation, replace(EVALUATION, auc=auc, model_digest=model_digest(model), champion=score))
        return model, evaluation

    def promote(self, candidate: tuple[Path, Path], **settings: Any) -> Promotion:
        return promote(PromoteConfig(run_id="run-1", **settings), *candidate, self.store, self.out, self.report)

    def versions(self) -> list[str]:
        return sorted(path.name for path in (self.store / "deepfm" / "versions").iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_first_model_becomes_version_1(place: Place) -> None:
    candidate = place.candidate("one")
    found = place.promote(candidate)
    assert (found.promoted, found.version, found.champion_before) == (True, 1, None)
    champion = read_champion(place.store, "deepfm")
    assert champion is not None
    assert (champion.version, champion.auc, champion.log_loss, champion.run_id) == (1, 0.78, 0.47, "run-1")
    assert (champion.model_digest, champion.data_digest) == (model_digest(candidate[0]), "d" * 64)
    copy = champion_model(place.store, champion)
    assert content(copy) == content(candidate[0])
    read_model(copy)
    assert content(copy.parent).keys() - {f"model/{name}" for name in content(copy)} == {"evaluation.json", "promotion.json"}


def test_promotion_json_and_report_say_what_happened(place: Place) -> None:
    found = place.promote(place.candidate("one"))
    document = json.loads(place.out.read_text())
    assert document["format_version"] == 1
    assert (document["promoted"], document["version"], document["champion_before"]) == (True, 1, None)
    assert document["reason"] == found.reason
    assert len(document["rules"]) == 6
    assert all(set(rule) == {"rule", "passed", "sentence"} and rule["passed"] for rule in document["rules"])
    page = place.report.read_text()
    assert "Promoted: version 1 is in force" in page
    assert "3 rows rejected" in page


def test_a_better_model_follows_and_the_old_version_stays(place: Place) -> None:
    place.promote(place.candidate("one"))
    before = content(place.store / "deepfm" / "versions" / "1")
    found = place.promote(place.candidate("two", auc=0.79))
    assert (found.promoted, found.version, found.champion_before) == (True, 2, 1)
    assert place.versions() == ["1", "2"]
    assert content(place.store / "deepfm" / "versions" / "1") == before


def test_a_worse_model_changes_nothing_and_is_no_error(place: Place) -> None:
    place.promote(place.candidate("one"))
    before = content(place.store)
    found = place.promote(place.candidate("two", auc=0.70))
    assert (found.promoted, found.version, found.champion_before) == (False, None, 1)
    assert "0.7000 against 0.7800" in found.reason
    assert "version 1 stays in force" in found.reason
    assert content(place.store) == before
    assert json.loads(place.out.read_text())["promoted"] is False
    assert "Not promoted" in place.report.read_text()


def test_a_worse_model_is_an_error_when_promotion_is_required(place: Place) -> None:
    place.promote(place.candidate("one"))
    with pytest.raises(NotPromotable, match="beyond the margin"):
        place.promote(place.candidate("two", auc=0.70), require_promotion=True)
    assert json.loads(place.out.read_text())["promoted"] is False


def test_the_margin_is_a_setting(place: Place) -> None:
    place.promote(place.candidate("one"))
    assert place.promote(place.candidate("two", auc=0.75), margin=0.05).version == 2


def test_an_undefined_auc_keeps_the_champion(place: Place) -> None:
    place.promote(place.candidate("one"))
    model, evaluation = place.candidate("two")
    document = json.loads(evaluation.read_text())
    evaluation.write_text(json.dumps({**document, "auc": None, "auc_reason": "no positive rows (0 of 50)"}))
    found = place.promote((model, evaluation))
    assert not found.promoted
    assert "cannot decide" in found.reason
    assert "version 1 stays in force" in found.reason
    assert place.versions() == ["1"]


def test_promoting_the_same_model_twice_changes_nothing(place: Place) -> None:
    candidate = place.candidate("one")
    place.promote(candidate)
    before = content(place.store)
    found = place.promote(candidate)
    assert (found.promoted, found.version) == (True, 1)
    assert content(place.store) == before


def test_an_evaluation_against_a_former_champion_must_be_repeated(place: Place) -> None:
    late = place.candidate("late", auc=0.9)
    place.promote(place.candidate("one"))
    found = place.promote(late)
    assert not found.promoted
    assert "evaluate again" in found.reason


def test_numbers_are_not_used_twice_and_leftovers_of_killed_runs_go(place: Place) -> None:
    versions = place.store / "deepfm" / "versions"
    (versions / "7").mkdir(parents=True)
    (versions / ".8.half").mkdir()
    (versions / ".8.half" / "part").touch()
    # What desktops and file servers leave in folders is not ours to remove.
    (versions / ".DS_Store").touch()
    (versions / ".snapshot").mkdir()
    assert place.promote(place.candidate("one")).version == 8
    assert sorted(path.name for path in versions.iterdir()) == [".DS_Store", ".snapshot", "7", "8"]


RACER = """
import sys
from pathlib import Path
from components.promote.step import PromoteConfig, promote
model, evaluation, store, out, report = map(Path, sys.argv[1:])
print("ready", flush=True)
promote(PromoteConfig(), model, evaluation, store, out, report)
"""


def test_of_two_runs_that_beat_the_same_champion_one_wins(place: Place) -> None:
    candidates = [place.candidate(f"racer{number}") for number in range(2)]
    outs = [place.root / f"race{number}.json" for number in range(2)]
    with ExitStack() as stack:
        with locked(place.store, "deepfm"):
            runs = [
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-c", RACER, *candidate, place.store, out, out.with_suffix(".html")],
                        cwd=ROOT,
                        stdout=subprocess.PIPE,
                    )
                )
                for candidate, out in zip(candidates, outs, strict=True)
            ]
            for run in runs:
                assert run.stdout is not None
                assert run.stdout.readline() == b"ready\n"
            time.sleep(0.3)
            assert place.versions() == []  # both wait for the lock
        assert [run.wait(timeout=30) for run in runs] == [0, 0]
    outcomes = [json.loads(out.read_text()) for out in outs]
    assert sorted(outcome["promoted"] for outcome in outcomes) == [False, True]
    (loser,) = (outcome for outcome in outcomes if not outcome["promoted"])
    assert "evaluate again" in loser["reason"]
    assert place.versions() == ["1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("{", "not valid JSON"),
        ("[]", "format_version 1 is expected"),
        ('{"format_version": 1}', "missing or unknown keys: .*auc"),
    ],
)
def test_a_damaged_evaluation_is_an_error(place: Place, text: str | None, message: str) -> None:
    model, evaluation = place.candidate("one")
    if text is None:
        evaluation.unlink()
    else:
        evaluation.write_text(text)
    with pytest.raises(NotPromotable, match=f"one.json: {message}"):
        place.promote((model, evaluation))
    assert not place.store.exists()


def test_an_evaluation_with_a_text_for_a_number_is_an_error(place: Place) -> None:
    model, evaluation = place.candidate("one")
    evaluation.write_text(json.dumps({**json.loads(evaluation.read_text()), "auc": "0.9"}))
    with pytest.raises(NotPromotable, match=r"auc is '0.9', a number is expected"):
        place.promote((model, evaluation))


def test_a_damaged_model_is_an_error_and_never_reaches_the_store(place: Place) -> None:
    model, evaluation = place.candidate("one")
    (model / "weights.npz").write_text("xxxxxx")
    with pytest.raises(NotPromotable, match=r"weights\.npz: damaged"):
        place.promote((model, evaluation))
    assert not place.store.exists()
    assert not place.out.exists()


def test_workers_that_disagreed_are_not_promoted(place: Place) -> None:
    found = place.promote(place.candidate("one", ranks_agreed=False))
    assert not found.promoted
    assert "no model is in force" in found.reason
    assert read_champion(place.store, "deepfm") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not valid JSON"), ('{"version": 1}', "not a champion.json")],
)
def test_a_damaged_store_is_an_error(place: Place, text: str, message: str) -> None:
    candidate = place.candidate("one")
    (place.store / "deepfm").mkdir(parents=True)
    (place.store / "deepfm" / "champion.json").write_text(text)
    with pytest.raises(NotPromotable, match=message):
        place.promote(candidate)


def test_a_champion_with_a_wrong_value_is_an_error(place: Place) -> None:
    place.promote(place.candidate("one"))
    path = place.store / "deepfm" / "champion.json"
    path.write_text(path.read_text().replace('"name": "deepfm"', '"name": null'))
    with pytest.raises(NotPromotable, match="name None is not str"):
        read_champion(place.store, "deepfm")


def test_a_champion_whose_version_is_gone_is_an_error(place: Place) -> None:
    place.promote(place.candidate("one"))
    (place.store / "deepfm" / "versions" / "1").rename(place.root / "away")
    with pytest.raises(NotPromotable, match="names version 1, which is not in the store"):
        read_champion(place.store, "deepfm")


@pytest.mark.parametrize("settings", [{"name": "a/b"}, {"name": ".."}, {"margin": -1.0}])
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        PromoteConfig(**settings)
