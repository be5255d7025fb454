"""Frames are found without reading them: against what wrote them, cut anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relaymesh.server.security.frame_scan import FrameScan
from tests.server.security.serving import frame

FRAMES = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 8, 9, 10]), st.sampled_from([0, 1, 125, 126, 300, 65_535, 65_536])),
    max_size=12,
)


@given(FRAMES, st.lists(st.integers(1, 100_000), max_size=8), st.integers(1, 4))
def test_every_frame_is_counted_wherever_the_bytes_are_cut(
    frames: list[tuple[int, int]], cuts: list[int], most: int
) -> None:
    written = [frame(opcode, b"x" * size) for opcode, size in frames]
    data = b"".join(written)
    scan, taken, control = FrameScan(), 0, 0
    pieces = [*cuts, len(data)]
    while data:
        piece, data = data[: pieces[0]], data[pieces[0] :]
        pieces = pieces[1:] or [len(data)]
        while piece:
            end = scan.cut(piece, most)
            begun = scan.charged()
            assert begun <= most
            control += begun
            taken += end
            piece = piece[end:]
    assert taken == sum(map(len, written))
    assert control == sum(opcode not in (1, 2) for opcode, _ in frames)


def test_a_piece_ends_where_a_frame_ends() -> None:
    pings = frame(9, b"abc") * 10
    assert FrameScan().cut(pings, 4) == 4 * len(frame(9, b"abc"))
