"""The spool in files: in order, checked, bounded, held by one process at a time."""

import itertools
import logging
import os
import random
import stat
from pathlib import Path

import pytest

from riglm.adapters.spool import directory as claims
from riglm.adapters.spool import segment as segments
from riglm.adapters.spool.directory import Claim, Held, sole_server
from riglm.adapters.spool.files import FileSpool, survey
from riglm.adapters.spool.segment import HEAD, VERSION, bodies, framed
from riglm.domain.errors import ConfigurationError
from riglm.ports.spool import SpoolUnavailable
from tests.records import a_session, an_invocation

SESSION = a_session()


def calls(count):
    return [an_invocation(SESSION, "read") for _ in range(count)]


def drained(spool):
    """All records of a spool, removed as they are read."""
    found = []
    while (segment := spool.oldest()) is not None:
        while records := segment.read(7):
            found += records
        spool.remove(segment)
    return found


def takes(spool):
    try:
        spool.append(calls(1))
    except SpoolUnavailable as error:
        assert "full" in str(error)  # noqa: PT017  # it may also not be raised
        return False
    return True


def files(root):
    return sorted(root.glob("*/*.seg"))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def left(root):
    """What a process left that is gone: five records in one segment; and the segment."""
    records = calls(5)
    with FileSpool(root) as spool:
        spool.append(records)
    return records, files(root)[0]


def test_records_come_back_in_their_order_over_many_segments(root):
    records = calls(300)
    with FileSpool(root, segment_bytes=4096) as spool:
        for at in range(0, 300, 9):
            assert spool.append(records[at : at + 9]) == 0
        assert len(files(root)) > 10
        assert drained(spool) == records


def test_nothing_is_made_before_there_is_a_record_and_nothing_lies_about_after_the_last(root):
    with FileSpool(root) as spool:
        assert spool.oldest() is None
        assert not root.exists()
        records = calls(3)
        spool.append(records)
        assert drained(spool) == records
        assert list(root.iterdir()) == []
        assert spool.size_bytes == 0


def test_only_the_owner_may_read_what_is_spooled(root):
    with FileSpool(root) as spool:
        spool.append(calls(1))
        for path in (root, *root.iterdir(), *files(root)):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_next_process_adopts_what_was_left_and_removes_it_once_it_is_stored(root, left):
    records, _ = left
    with FileSpool(root) as spool:
        segment = spool.oldest()
        assert not segment.is_own
        assert drained(spool) == records
        assert list(root.iterdir()) == []


def test_what_was_adopted_and_not_removed_is_left_to_the_next(root, left):
    records, _ = left
    with FileSpool(root) as spool:
        assert spool.oldest().read(2) == records[:2]
    with FileSpool(root) as spool:
        assert drained(spool) == records


def test_of_two_processes_that_start_at_once_one_adopts(root, left):
    records, _ = left
    with FileSpool(root) as one, FileSpool(root) as other:
        assert other.oldest() is None
        assert drained(one) == records


def test_the_spool_of_a_process_that_lives_is_left_alone(root):
    records = calls(2)
    with FileSpool(root) as one:
        one.append(records)
        with FileSpool(root) as other:
            assert other.oldest() is None
            assert [each.is_held for each in survey(root)] == [True]
        assert drained(one) == records


def test_what_was_adopted_goes_first(root, left):
    with FileSpool(root) as spool:
        own = calls(1)
        spool.append(own)
        assert drained(spool) == left[0] + own


def test_a_full_spool_takes_nothing_and_something_again_when_there_is_room(root):
    with FileSpool(root, max_bytes=4096, segment_bytes=1024) as spool:
        kept = list(itertools.takewhile(lambda _: takes(spool), range(1000)))
        assert spool.size_bytes <= 4096
        assert sum(path.stat().st_size for path in files(root)) == spool.size_bytes
        assert 0 < len(drained(spool)) == len(kept) < 1000
        assert takes(spool)


def test_what_was_adopted_counts_for_the_cap(root, left):
    with FileSpool(root, max_bytes=left[1].stat().st_size + 10) as spool, pytest.raises(SpoolUnavailable):
        spool.append(calls(1))


def test_a_record_that_cannot_be_written_down_is_not_kept_and_counted(root):
    good = calls(2)
    with FileSpool(root) as spool:
        assert spool.append([good[0], "no record", good[1]]) == 1
        assert drained(spool) == good


def test_a_line_that_was_not_written_to_its_end_is_skipped_and_counted(root, left):
    records, path = left
    os.truncate(path, path.stat().st_size - 5)
    with FileSpool(root) as spool:
        segment = spool.oldest()
        assert segment.read(100) == records[:4]
        assert segment.damaged() == 1
        assert segment.damaged() == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_byte_costs_one_record_at_most(root, left, seed):
    records, path = left
    data = bytearray(path.read_bytes())
    at = random.Random(seed).randrange(len(HEAD), len(data))
    data[at] ^= 1 << (seed % 8)
    path.write_bytes(data)
    with FileSpool(root) as spool:
        found = drained(spool)
    assert len(found) >= 4
    assert [record for record in records if record in found] == found


def test_every_end_of_line_can_be_lost_without_losing_a_record(root, left):
    records, path = left
    body = path.read_bytes()[len(HEAD) :].replace(b"\n", b"x")
    path.write_bytes(HEAD + body)
    with FileSpool(root) as spool:
        assert drained(spool) == records


@pytest.mark.parametrize("data", [b"", b"riglm-sp", b"riglm-spool ", HEAD])
def test_a_segment_that_was_only_begun_holds_nothing_and_is_removed(root, left, data):
    left[1].write_bytes(data)
    with FileSpool(root) as spool:
        segment = spool.oldest()
        assert segment.read(5) == []
        assert segment.damaged() == 0
        spool.remove(segment)
    assert list(root.iterdir()) == []


def test_a_segment_whose_head_is_damaged_is_read_all_the_same(root, left):
    records, path = left
    path.write_bytes(b"X" + path.read_bytes()[1:])
    with FileSpool(root) as spool:
        assert drained(spool) == records


def test_a_segment_of_a_newer_riglm_is_left_where_it_is(root, left, caplog):
    path = left[1]
    path.write_bytes(path.read_bytes().replace(HEAD, b"riglm-spool %d\n" % (VERSION + 1), 1))
    written = path.read_bytes()
    for _ in range(2):
        with FileSpool(root) as spool:
            assert spool.oldest() is None
    assert path.read_bytes() == written
    assert "which a newer riglm wrote: upgrade riglm" in caplog.text
    assert [each.newer for each in survey(root)] == [1]


def test_damage_to_own_segments_is_counted_exactly(root):
    with FileSpool(root, segment_bytes=1) as spool:
        spool.append(calls(5))
        path = files(root)[0]
        path.write_bytes(HEAD + b"\n" * 20)
        segment = spool.oldest()
        assert (segment.unread, segment.read(100)) == (5, [])
        assert (segment.unread, segment.damaged()) == (0, 5)


def test_an_own_segment_that_somebody_removed_is_lost_and_counted(root):
    with FileSpool(root, segment_bytes=1) as spool:
        spool.append(calls(5))
        files(root)[0].unlink()
        segment = spool.oldest()
        assert segment.read(100) == []
        assert segment.damaged() == 5
        spool.remove(segment)
        assert spool.oldest() is None


def test_a_segment_that_cannot_be_read_is_passed_over_and_kept(root, left):
    path = left[1]
    path.unlink()
    path.mkdir()  # what opens and cannot be read, for root as well
    with FileSpool(root) as spool:
        assert spool.oldest() is None
        own = calls(1)
        spool.append(own)
        assert drained(spool) == own
    assert path.exists()


def test_a_segment_can_be_set_aside_for_the_next_process(root, left):
    with FileSpool(root) as spool:
        spool.set_aside(spool.oldest())
        assert spool.oldest() is None
    with FileSpool(root) as spool:
        assert drained(spool) == left[0]


@pytest.mark.parametrize("durable", [False, True])
def test_a_disk_that_fails_takes_nothing_and_costs_nothing_that_was_kept(root, monkeypatch, durable):
    first, second, third = calls(3), calls(3), calls(3)
    writes = []

    def failing(descriptor, data):
        writes.append(1)
        if len(writes) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(data)[:100])  # a short write, and then none

    with FileSpool(root, durable=durable) as spool:
        spool.append(first)
        write = os.write
        monkeypatch.setattr(segments.os, "write", failing)
        with pytest.raises(SpoolUnavailable, match="No space left"):
            spool.append(second)
        monkeypatch.undo()
        spool.append(third)
        assert drained(spool) == first + third


def test_a_disk_that_fails_to_sync_keeps_nothing_of_a_durable_append(root, monkeypatch):
    def failing(descriptor):
        raise OSError(5, "Input/output error")

    first, second, third = calls(2), calls(2), calls(2)
    with FileSpool(root, durable=True) as spool:
        spool.append(first)
        monkeypatch.setattr(segments, "_sync", failing)
        with pytest.raises(SpoolUnavailable, match="Input/output"):
            spool.append(second)
        monkeypatch.undo()
        spool.append(third)
        assert drained(spool) == first + third


@pytest.mark.parametrize(("durable", "least"), [(False, 0), (True, 3)])
def test_a_durable_spool_syncs_every_append(root, monkeypatch, durable, least):
    synced = []
    monkeypatch.setattr(segments, "_sync", synced.append)
    with FileSpool(root, durable=durable) as spool:
        for _ in range(3):
            spool.append(calls(1))
        assert len(synced) == least
        spool.sync()
        spool.sync()
        assert len(synced) == max(least, 1)


def test_a_place_that_cannot_be_made_is_a_spool_that_takes_nothing(tmp_path):
    (tmp_path / "spool").write_text("in the way")
    with FileSpool(tmp_path / "spool") as spool:
        with pytest.raises(SpoolUnavailable, match="cannot be written"):
            spool.append(calls(1))
        assert spool.oldest() is None


def test_a_survey_counts_what_lies_about_and_changes_nothing(root, left):
    path = left[1]
    with path.open("ab") as file:
        file.write(framed(SESSION)[:-9])
    before = {each: each.stat().st_mtime_ns for each in root.rglob("*")}
    (found,) = survey(root)
    assert (found.records, found.damaged, found.segments, found.is_held) == (5, 1, 1, False)
    assert found.size_bytes == path.stat().st_size
    assert {each: each.stat().st_mtime_ns for each in root.rglob("*")} == before


def test_a_survey_of_no_spool_is_empty(root):
    assert survey(root) == []


def test_a_lock_without_a_directory_is_cleared_away(root):
    root.mkdir()
    (root / "1-gone.lock").touch()
    with FileSpool(root):
        pass
    assert list(root.iterdir()) == []


def test_a_claim_is_one_process_s_until_it_lets_go(tmp_path):
    path = tmp_path / "lock"
    with Claim(path, "the first"):
        with pytest.raises(Held) as held:
            Claim(path)
        assert held.value.words == "the first"
    Claim(path, "2nd").release()
    assert path.read_text() == "2nd"


def test_frames_tell_where_they_end_without_the_end_of_the_line():
    lines = [framed(each) for each in calls(3)]
    data = HEAD + b"".join(lines)
    assert [body is None for body in bodies(data)] == [False] * 3
    assert [body is None for body in bodies(data[:-1])] == [False] * 3
    assert [body is None for body in bodies(data[:-2])] == [False, False, True]


def test_warnings_name_the_place_of_what_could_not_be_looked_for(root, monkeypatch, caplog):
    def failing(*_):
        raise PermissionError(13, "Permission denied", str(root))

    monkeypatch.setattr(type(root), "glob", failing)
    with caplog.at_level(logging.WARNING), FileSpool(root) as spool:
        assert spool.oldest() is None
    assert str(root) in caplog.text


def test_a_second_server_on_a_data_directory_is_told_of_the_first(tmp_path):
    with sole_server(tmp_path, "127.0.0.1 port 8700"):
        with pytest.raises(ConfigurationError, match=rf"process {os.getpid()}, 127.0.0.1 port 8700.*RIGLM_DATA_DIR"):
            sole_server(tmp_path, "127.0.0.1 port 8800").__enter__()
        with sole_server(tmp_path / "other", ""):
            pass
    with sole_server(tmp_path, ""):
        pass
    assert not (tmp_path / "serve.lock").exists()


def test_a_data_directory_that_cannot_be_used_keeps_no_server_from_serving(tmp_path):
    (tmp_path / "data").write_text("in the way")
    with sole_server(tmp_path / "data", ""):
        pass


def test_a_claim_that_was_removed_while_another_waited_for_it_is_made_anew(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    first = Claim(path, "the first")
    removed = []

    def locks(descriptor, lock=claims._lock):
        if not removed:
            removed.append(1)
            first.remove()  # between opening the file and locking it
        lock(descriptor)

    monkeypatch.setattr(claims, "_lock", locks)
    second = Claim(path, "the second")
    assert path.read_text() == "the second"
    with pytest.raises(Held):
        Claim(path)
    second.remove()


def test_what_goes_away_during_a_survey_is_left_out(root, left, monkeypatch):
    read = type(root).read_bytes
    with FileSpool(root) as spool:
        spool.append(calls(2))

    def gone(path):
        if path != left[1]:
            return read(path)
        path.unlink()
        raise FileNotFoundError

    monkeypatch.setattr(type(root), "read_bytes", gone)
    assert sorted(each.records for each in survey(root)) == [0, 2]


def test_a_spool_that_goes_away_during_a_survey_is_left_out(root, left, monkeypatch):
    def gone(path, pattern):
        raise FileNotFoundError

    monkeypatch.setattr(type(root), "glob", gone)
    assert survey(root) == []


def test_a_full_disk_costs_no_descriptor_and_leaves_no_lock(root, monkeypatch):
    opened = []

    def opening(*arguments):
        opened.append(os_open(*arguments))
        return opened[-1]

    def full(*_):
        raise OSError(28, "No space left on device")

    os_open = os.open
    with FileSpool(root) as spool:
        with monkeypatch.context() as patch:
            patch.setattr(claims.os, "open", opening)
            patch.setattr(claims.os, "write", full)
            with pytest.raises(SpoolUnavailable, match="No space left"):
                spool.append(calls(1))
        assert len(opened) == 1
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(opened[0])
        assert list(root.iterdir()) == []


def test_a_directory_that_cannot_be_looked_at_is_left_without_a_word(root, monkeypatch):
    def failing(*_, **__):
        raise PermissionError(13, "Permission denied")

    with FileSpool(root) as spool:
        spool.append(calls(1))
        segment = spool.oldest()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "exists", failing)
            patch.setattr(Path, "rmdir", failing)
            spool.remove(segment)
        assert spool.oldest() is None


def test_a_pipe_among_the_segments_holds_nobody_up(root, left):
    os.mkfifo(left[1].with_name("0000000000.seg"))
    assert survey(root)[0].records == 5
    with FileSpool(root) as spool:
        assert drained(spool) == left[0]


def test_a_segment_of_a_newer_format_takes_no_room_from_others(root, left):
    left[1].write_bytes(b"riglm-spool %d\n" % (VERSION + 1) + bytes(5000))
    with FileSpool(root) as spool:
        assert spool.size_bytes == 0


def test_what_was_cut_off_after_a_failed_sync_takes_no_room(root, monkeypatch):
    def failing(descriptor):
        raise OSError(5, "Input/output error")

    with FileSpool(root, durable=True) as spool:
        spool.append(calls(2))
        before = spool.size_bytes
        with monkeypatch.context() as patch:
            patch.setattr(segments, "_sync", failing)
            with pytest.raises(SpoolUnavailable, match="Input/output"):
                spool.append(calls(2))
        assert spool.size_bytes == before == files(root)[0].stat().st_size
