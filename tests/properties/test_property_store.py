"""Zip files of others, and secrets: nothing is written outside the folder, and no secret remains."""

from __future__ import annotations

import io
import stat
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inductor_bench.errors import InductorBenchError
from inductor_bench.store.redaction import MASK, SHORTEST, Redaction
from inductor_bench.store.run_files import unpack_run

PLACES = ("record.json", "modules/m.py", "kernels/k.safetensors", "kernels/../../x.py", "/etc/x.json", "../record.json")
members = st.lists(
    st.tuples(
        st.one_of(
            st.sampled_from(
                (*PLACES, "a/record.json", "a/modules/m.py", "modules/a/b.py", "modules\\m.py", "modules/")
            ),
            st.text(st.characters(codec="utf-8"), max_size=9).map("modules/{}.py".format),
        ),
        st.binary(max_size=20),
        st.sampled_from((0, stat.S_IFLNK | 0o777, stat.S_IFDIR | 0o755, stat.S_IFIFO)),
    ),
    max_size=5,
)


def packed(files: list[tuple[str, bytes, int]]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in files:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return stream.getvalue()


def unpack(data: bytes) -> dict[str, bytes] | None:
    """The unpacked files by their places; ``None`` of a file that is refused in words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.zip"
        path.write_bytes(data)
        found = None
        try:
            with unpack_run(path) as unpacked:
                files = [item for item in unpacked.rglob("*") if not item.is_dir()]
                assert all(item.is_file() and not item.is_symlink() for item in files)
                found = {str(item.relative_to(unpacked)): item.read_bytes() for item in files}
            assert not unpacked.exists()
        except InductorBenchError as error:
            assert str(path) in error.message
        assert [item.name for item in Path(folder).iterdir()] == ["run.zip"]
    return found


@given(members)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_file_gives_one_record_and_plain_files_below_it(files: list[tuple[str, bytes, int]]) -> None:
    found = unpack(packed(files))
    records = [name for name, _, _ in files if name.rpartition("/")[2] == "record.json"]
    if len(records) != 1 or not found:
        return
    assert "record.json" in found
    assert all(name == "record.json" or name.startswith(("modules/", "kernels/")) for name in found)


@given(members, st.data())
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_damaged_zip_file_is_read_or_refused_in_words(
    files: list[tuple[str, bytes, int]], data: st.DataObject
) -> None:
    whole = bytearray(packed(files))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    unpack(bytes(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole))


secrets = st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=SHORTEST, max_size=20)
words = st.text(st.characters(codec="utf-8"), max_size=30)
OPTIONS = ("--api-key", "--hf_token", "--password", "--wandb.api-key", "--my-secret")


@given(secrets, st.sampled_from(OPTIONS), st.booleans(), words, words)
def test_a_secret_of_a_command_remains_in_no_text(
    secret: str, option: str, joined: bool, before: str, after: str
) -> None:
    command = [f"{option}={secret}"] if joined else [option, secret]
    found = Redaction.find([command], {})
    assume(found.values)  # a switch, a number, a path or another option is no secret
    assert secret not in found.text(before + secret + after)
    assert secret not in " ".join(found.words([before, *command, after]))


@given(secrets, st.sampled_from(("API_KEY", "HF_TOKEN", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY")), words)
def test_a_secret_of_the_environment_remains_in_no_text(secret: str, name: str, text: str) -> None:
    found = Redaction.find([], {name: secret})
    assume(found.values)
    assert secret not in found.text(f"{text}{secret}{text}")


@given(secrets, words)
def test_a_redacted_text_is_redacted_to_itself(secret: str, text: str) -> None:
    found = Redaction.find([["--token", secret]], {})
    once = found.text(f"{text} {secret} https://user:{text}@host/?key={secret} Authorization: Bearer {secret}")
    assert found.text(once) == once


@given(st.text(st.characters(codec="utf-8", exclude_characters="@?&:"), max_size=60))
def test_a_text_without_a_secret_is_not_changed(text: str) -> None:
    assume("bearer" not in text.lower() and "authorization" not in text.lower())
    assert Redaction.find([["--token", "a-secret-of-mine"]], {}).text(text) == text
    assert MASK in Redaction.find([["--token", "a-secret-of-mine"]], {}).text(f"{text}a-secret-of-mine")
