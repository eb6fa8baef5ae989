"""Files with a local job: it never runs without them, only its own runner carries them, and what fails says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuda.dispatch.job_files import FilesTooLarge, FilesUnfit, NoFiles, NoRoom, Piece
from remuda.dispatch.settings import FileSettings
from remuda.dispatch.submissions import FilesMissing, NoSuchPool
from remuda.dispatch.telemetry import Exit, Report
from remuda.dispatch.who import RunnerIdentity
from remuda.model.job import JobState
from remuda.model.job_files import PIECE_MAX_BYTES, covers, path_fault
from remuda.ports.forge import ForgeRefused
from remuda.ports.local_files import StoredFile, Way
from remuda.ports.local_jobs import Upload
from tests.support.local_jobs import TOTAL_MAX, a_local_job
from tests.support.local_shop import LocalShop, a_pool

TEXT = b"an archive"
SHA = "ab" * 32
POD = RunnerIdentity("linux-a", "uid-linux-a")
OTHER = RunnerIdentity("linux-b", "uid-linux-b")


@pytest.fixture
def shop() -> LocalShop:
    return LocalShop()


async def send(shop: LocalShop, name: str = "upload-1", *, by: str = "ann") -> None:
    half = await shop.job_files.keep(name, Piece(len(TEXT), 0, TEXT[:4]), by=by)
    assert half == 4
    assert await shop.job_files.keep(name, Piece(len(TEXT), 4, TEXT[4:]), by=by) == len(TEXT)


async def post(shop: LocalShop, *download: str, upload: str = "upload-1", key: str = "k") -> str:
    more = {"upload_id": upload, "upload_sha256": SHA} if upload else {}
    return (await shop.post(key=key, download=download, **more)).job_id


# --- To the runner ---------------------------------------------------------------------------------------------------


async def test_files_are_handed_out_with_the_job_and_to_its_pod_alone(shop: LocalShop) -> None:
    await send(shop)
    job_id = await post(shop, "dist")
    minted = await shop.hand_over()

    assert minted.upload is not None
    assert (minted.upload.size_bytes, minted.upload.sha256) == (len(TEXT), SHA)
    assert minted.download == ("dist",)
    assert await shop.job_files.for_runner(POD, 3) == TEXT[3:]
    with pytest.raises(NoFiles):
        await shop.job_files.for_runner(OTHER, 0)
    again = RunnerIdentity(POD.pod, "uid-of-another-pod-of-that-name")
    with pytest.raises(NoFiles):
        await shop.job_files.for_runner(again, 0)
    assert await post(shop, "dist") == job_id, "the same request is the same job"


async def test_a_pod_that_has_not_fetched_all_files_may_not_begin(shop: LocalShop) -> None:
    await send(shop)
    job_id = await post(shop)
    await shop.hand_over()

    assert "files were not fetched" in (await shop.says(started=True)).stop
    assert "files were not fetched" in (await shop.says(exit_code=0)).stop
    assert (await shop.kept(job_id)).begun_by == ""
    await shop.job_files.for_runner(POD, 0)
    assert (await shop.says(started=True)).stop == ""


@pytest.mark.parametrize("case", ["none", "half", "somebody else's", "taken"])
async def test_a_job_is_not_taken_without_its_files(shop: LocalShop, case: str) -> None:
    if case == "half":
        await shop.job_files.keep("upload-1", Piece(10, 0, b"half"), by="ann")
    if case == "somebody else's":
        await send(shop, by="bob")
    if case == "taken":
        await send(shop)
        await post(shop, key="first")
    before = await shop.views.jobs(states=(JobState.QUEUED,))

    with pytest.raises(FilesMissing):
        await post(shop)

    assert await shop.views.jobs(states=(JobState.QUEUED,)) == before


async def test_a_job_whose_files_are_gone_fails_and_is_not_run(shop: LocalShop) -> None:
    upload = Upload(file_id="upload-9", size_bytes=10, sha256=SHA)
    await shop.local.add(a_local_job("local-9", upload=upload))
    await shop.both.queue("local-9")
    claimed = await shop.claim()

    with pytest.raises(ForgeRefused):
        await shop.mint(claimed.job)

    end = (await shop.kept("local-9")).end
    assert end is not None
    assert (end.conclusion, end.exit_code) == ("failure", None)
    assert "files" in end.reason


async def test_pods_without_an_agent_are_given_no_files_to_carry(shop: LocalShop) -> None:
    shop.shelf.kept = (a_pool(runtime_class_name="kata"),)
    await send(shop)
    for upload, download in (("upload-1", ()), ("", ("dist",))):
        with pytest.raises(NoSuchPool, match="Pods without an agent"):
            await post(shop, *download, upload=upload)
    assert (await shop.post()).is_new


async def test_an_upload_has_a_bound_and_so_has_a_piece(shop: LocalShop) -> None:
    with pytest.raises(FilesTooLarge, match="may have 500"):
        await shop.job_files.keep("upload-1", Piece(501, 0, b"x"), by="ann")
    large = replace(shop.job_files, settings=FileSettings())
    piece = Piece(2 * PIECE_MAX_BYTES, 0, b"x" * (PIECE_MAX_BYTES + 1))
    with pytest.raises(FilesTooLarge, match="a piece"):
        await large.keep("upload-1", piece, by="ann")
    assert await shop.files.get("upload-1") is None


@pytest.mark.parametrize(
    ("piece", "by", "error"),
    [
        pytest.param(Piece(10, 0, b"x"), "bob", FilesUnfit, id="somebody else"),
        pytest.param(Piece(11, 0, b"x"), "ann", FilesUnfit, id="another size"),
        pytest.param(Piece(10, 9, b"xx"), "ann", FilesUnfit, id="past its end"),
    ],
)
async def test_a_piece_that_does_not_fit_is_refused(
    shop: LocalShop, piece: Piece, by: str, error: type[Exception]
) -> None:
    await shop.job_files.keep("upload-1", Piece(10, 0, b"x"), by="ann")
    with pytest.raises(error):
        await shop.job_files.keep("upload-1", piece, by=by)


async def test_all_uploads_together_have_a_bound(shop: LocalShop) -> None:
    for number in range(TOTAL_MAX // 500):
        await shop.job_files.keep(f"upload-{number}", Piece(500, 0, b"x"), by="ann")
    with pytest.raises(NoRoom, match="--files-total"):
        await shop.job_files.keep("one-more", Piece(1, 0, b"x"), by="ann")


# --- Back from the runner --------------------------------------------------------------------------------------------


async def test_what_a_job_left_comes_back_while_it_counts_as_running(shop: LocalShop) -> None:
    job_id = await post(shop, "dist", upload="")
    await shop.hand_over()
    piece = Piece(len(TEXT), 0, TEXT)
    with pytest.raises(FilesUnfit):
        await shop.job_files.from_runner(POD, piece)  # it has not begun
    await shop.says(started=True)
    assert await shop.job_files.from_runner(POD, Piece(len(TEXT), 0, TEXT[:3])) == 3
    assert await shop.job_files.from_runner(POD, Piece(len(TEXT), 3, TEXT[3:])) == len(TEXT)
    with pytest.raises(FilesUnfit):
        await shop.job_files.from_runner(OTHER, piece)
    exit_ = Exit(code=7, files_note="half of it is missing")
    await shop.telemetry.take(POD, Report(exit=exit_))

    job = await shop.kept(job_id)
    assert job.end is not None
    assert (job.end.exit_code, job.end.files_note) == (7, "half of it is missing")
    back = await shop.job_files.back(job)
    assert back is not None
    assert b"".join([part async for part in shop.job_files.pieces(back, 2)]) == TEXT[2:]
    with pytest.raises(FilesUnfit):
        await shop.job_files.from_runner(POD, piece)  # it is over


async def test_what_nobody_asked_for_is_not_taken(shop: LocalShop) -> None:
    await post(shop, upload="")
    await shop.hand_over()
    await shop.says(started=True)
    with pytest.raises(FilesUnfit):
        await shop.job_files.from_runner(POD, Piece(1, 0, b"x"))


async def ended(shop: LocalShop, key: str, pod: RunnerIdentity) -> StoredFile:
    """Run a job to its end whose files came back."""
    job_id = await post(shop, "dist", upload="", key=key)
    await shop.hand_over(pod.pod)
    await shop.says(pod.pod, started=True)
    await shop.job_files.from_runner(pod, Piece(450, 0, b"x" * 450))
    await shop.says(pod.pod, exit_code=0)
    back = await shop.job_files.back(await shop.kept(job_id))
    assert back is not None
    return back


async def test_what_came_back_counts_no_more_soon_after_it_was_fetched_whole(
    shop: LocalShop,
) -> None:
    first, second = await ended(shop, "k1", POD), await ended(shop, "k2", OTHER)

    async def keep() -> int:
        return await shop.job_files.keep("upload-1", Piece(450, 0, b"x"), by="ann")

    shop.clock.forward(3600)
    with pytest.raises(NoRoom) as refused:
        await keep()
    assert "Fetch what came back from jobs that are over" in refused.value.fix

    reading = shop.job_files.pieces(first, 0)
    await anext(reading)
    await reading.aclose()  # whoever fetched it has gone in the middle
    shop.clock.forward(3600)
    with pytest.raises(NoRoom):
        await keep()

    assert len(b"".join([part async for part in shop.job_files.pieces(first, 0)])) == 450
    with pytest.raises(NoRoom):
        await keep()
    again = b"".join([part async for part in shop.job_files.pieces(first, 0)])
    assert len(again) == 450, "it may be fetched again for a moment"
    shop.clock.forward(31)
    assert await keep() == 1
    assert await shop.files.get(second.file_id) is not None, "nobody has fetched it"


async def test_what_was_fetched_goes_some_minutes_later(shop: LocalShop) -> None:
    back = await ended(shop, "k1", POD)
    async for _ in shop.job_files.pieces(back, 0):
        pass
    await shop.tidying.tick()
    assert await shop.files.get(back.file_id) is not None
    shop.clock.forward(FileSettings().fetched.total_seconds() + 1)
    await shop.tidying.tick()
    assert await shop.files.get(back.file_id) is None


async def test_files_go_a_while_after_their_job(shop: LocalShop) -> None:
    await send(shop)
    job_id = await post(shop, "dist")
    await shop.hand_over()
    await shop.job_files.for_runner(POD, 0)
    await shop.says(started=True)
    await shop.job_files.from_runner(POD, Piece(len(TEXT), 0, TEXT))
    await shop.says(exit_code=0)
    await shop.tidying.tick()

    async def left() -> list[bool]:
        return [await shop.files.of_job(job_id, way) is not None for way in (Way.IN, Way.OUT)]

    assert await left() == [False, True]
    shop.clock.forward(FileSettings().kept.total_seconds() + 1)
    await shop.tidying.tick()
    assert await left() == [False, False]
    assert (await shop.kept(job_id)).end is not None, "the job itself is remembered for longer"


# --- Paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["dist", "a/b.txt", ".", "-x", "a b", "ü", "..a", "a/...", "*"])
def test_paths_that_may_be_asked_for(path: str) -> None:
    assert path_fault(path) == ""


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("", "empty"),
        ("/etc/passwd", "begin in"),
        ("..", "leads out"),
        ("a/../../b", "leads out"),
        ("./a", "write it as a"),
        ("a/", "write it as a"),
        ("a//b", "write it as a/b"),
        ("a\nb", "shown"),
        ("a\0", "shown"),
        ("x" * 1001, "1000"),
    ],
)
def test_paths_that_may_not(path: str, fault: str) -> None:
    assert fault in path_fault(path)


@pytest.mark.parametrize(
    ("asked", "found", "so"),
    [
        ("dist", "dist", True),
        ("dist", "dist/a/b", True),
        ("dist", "distance", False),
        ("dist/a", "dist", False),
        (".", "anything/at/all", True),
    ],
)
def test_what_a_path_asks_for(asked: str, found: str, so: bool) -> None:  # noqa: FBT001 - a table
    assert covers(asked, found) is so
