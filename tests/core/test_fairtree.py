"""Fair Tree level by level, against the plain walk of one budget after another, in fractions."""

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from allocator.core.fairshare import ShareNode, factors

Tree = list[ShareNode]


def plain(nodes: Tree) -> dict[str, int]:
    """How many leaves are ahead of each, as the definition says it, node by node."""
    by_name = {node.name: node for node in nodes}
    inner = {node.parent for node in nodes}
    flat = {n.name for n in nodes if n.shares == "parent" and n.name in inner}

    def home(node: ShareNode) -> str | None:
        return home(by_name[str(node.parent)]) if node.parent in flat else node.parent

    def below(place: str | None) -> Tree:
        return [n for n in nodes if n.name not in flat and home(n) == place]

    def used(node: ShareNode) -> Fraction:
        if node.name not in inner:
            return Fraction(node.usage)
        return sum((used(n) for n in nodes if n.parent == node.name), Fraction(0))

    def level(node: ShareNode) -> tuple[int, Fraction]:
        siblings = below(home(node))
        if isinstance(node.shares, str):
            return 1, Fraction(0)  # infinite
        if not node.shares:
            return 0, Fraction(0)
        if not used(node):
            return 1, Fraction(0)
        shares = sum(Fraction(n.shares) for n in siblings if not isinstance(n.shares, str))
        return 0, Fraction(node.shares) / shares / (
            used(node) / sum(map(used, siblings), Fraction(0))
        )

    before: dict[str, int] = {}

    def walk(members: Tree, joined: int | None) -> None:
        leaves = [n for n in members if n.name not in inner]
        if leaves and joined is None:
            joined = len(before)
        for leaf in leaves:
            assert joined is not None
            before[leaf.name] = joined
        merged = [child for n in members if n.name in inner for child in below(n.name)]
        ranked = sorted({level(child) for child in merged}, reverse=True)
        for rank, value in enumerate(ranked):
            tied = [child for child in merged if level(child) == value]
            walk(tied, joined if rank == 0 else None)

    roots = below(None)
    for value in sorted({level(root) for root in roots}, reverse=True):
        walk([root for root in roots if level(root) == value], None)
    return before


def is_ranked_as_defined(nodes: Tree) -> bool:
    before = plain(nodes)
    count = len(before)
    return dict(factors(nodes)) == {n: Fraction(count - b, count) for n, b in before.items()}


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Small trees in which much ties, or nearly does, with numbers small, huge and decimal."""
    scale = draw(st.sampled_from([Fraction(1), Fraction(2**31), Fraction(10**19), Fraction(1, 3)]))
    near = draw(st.booleans())
    nodes: Tree = []
    for i in range(draw(st.integers(1, 14))):
        parents = [None, *(node.name for node in nodes)] if nodes else [None]
        parent = draw(st.sampled_from(parents))
        share = draw(st.integers(0, 3)) * scale
        usage = draw(st.integers(0, 3)) * scale
        if near and usage:
            usage = usage * 10**16 + draw(st.integers(0, 1))
        flat = parent is not None and draw(st.integers(0, 5)) == 0
        nodes.append(ShareNode(f"n{i}", parent, "parent" if flat else share, usage))
    return nodes


@given(trees())
@example([ShareNode("a", None, 1, 10**400), ShareNode("b", None, 1, 1)])
@example([ShareNode("a", None, 10**400, 1), ShareNode("b", None, 1, 10**9)])
def test_any_tree_is_ranked_as_the_definition_says(nodes: Tree) -> None:
    assert is_ranked_as_defined(nodes)


def test_ratios_that_tie_in_other_words_tie() -> None:
    # 1/3 : 2/6 below one program, 5/10 : 1/2 below another that ties with it.
    nodes = [
        ShareNode("p", None, 1, 0),
        ShareNode("q", None, 1, 0),
        *(ShareNode(name, "p", share, use) for name, share, use in (("a", 1, 2), ("b", 2, 4))),
        *(ShareNode(name, "q", share, use) for name, share, use in (("c", 5, 5), ("d", 1, 1))),
    ]
    assert set(factors(nodes).values()) == {Fraction(1)}
    assert is_ranked_as_defined(nodes)


def test_a_long_chain_ends() -> None:
    chain = [ShareNode("0", None, 1, 0)]
    chain += [ShareNode(str(i), str(i - 1), 1, i) for i in range(1, 300)]
    assert dict(factors(chain)) == {"299": Fraction(1)}
