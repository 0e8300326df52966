"""How pages write numbers, money, lengths of time and instants."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.paginator import Paginator
from django.template import Context, Template
from django.test import RequestFactory
from django.utils import timezone, translation

from clusters.templatetags import allotment as tags
from clusters.templatetags import figures

pytestmark = pytest.mark.once
CREDIT = 3_600_000
NOW = datetime(2026, 11, 26, 17, 12, 8, tzinfo=UTC)  # Thursday, 14:12 in São Paulo


@pytest.fixture
def sao_paulo():
    with timezone.override("America/Sao_Paulo"):
        yield


def render(source: str, query: str = "", **context: object) -> str:
    request = RequestFactory().get(f"/jobs?{query}")
    return Template("{% load allotment figures %}" + source).render(
        Context({"request": request, **context})
    )


@pytest.mark.parametrize(
    ("mgpus", "places", "text"),
    [
        (0, 0, "0"),
        (CREDIT, 0, "1"),
        (CREDIT // 2, 0, "1"),  # half up, not half to even
        (5 * CREDIT // 2, 0, "3"),
        (CREDIT // 2 - 1, 0, "0"),
        (17_582 * CREDIT, 0, "17,582"),
        (-15_644 * CREDIT, 0, "−15,644"),
        (-1, 0, "0"),  # never −0
        (3264 * CREDIT // 10, 1, "326.4"),
        (9_007_199_254_740_993 * CREDIT, 0, "9,007,199,254,740,993"),  # beyond what a float holds
        (None, 0, "–"),
    ],
)
def test_credits_are_milli_gpu_seconds_over_3600000(mgpus, places, text):
    assert tags.credits(mgpus, places) == text


def test_differences_carry_their_sign():
    assert tags.signed_credits(17_582 * CREDIT) == "+17,582"
    assert tags.signed_credits(-CREDIT) == "−1"
    assert tags.signed_credits(1) == "±0"
    assert [tags.signed_gpu_hours(96 * 3600 * sign) for sign in (1, -1, 0)] == ["+96", "−96", "±0"]
    assert tags.signed(0.04, 1) == "±0.0"
    assert tags.signed(Decimal("8.65"), 1) == "+8.7"
    assert tags.signed(None) == "–"
    assert tags.signed_percent(-2000, 3) == "−2.000"


def test_other_units():
    assert tags.gpu_hours(7_200) == "2"
    assert tags.gpu_hours(2_302 * 3600 + 1800, 1) == "2,302.5"
    assert tags.percent(8_750, 2) == "8.75"
    assert tags.percent(61_510) == "61.5"
    assert tags.plain_percent(33_333) == "33.333"
    assert tags.plain_percent(100_000) == "100.000"
    assert tags.number(1.284, 2) == "1.28"
    assert tags.job_number(48_127) == "#48\u202f127"
    assert tags.job_number(7) == "#7"


def test_numbers_follow_the_readers_language():
    with translation.override("pt-br"):
        assert tags.credits(17_582 * CREDIT + CREDIT // 2, 1) == "17.582,5"
        assert tags.plain_percent(33_333) == "33.333"


@pytest.mark.parametrize(
    ("seconds", "text", "short"),
    [
        (0, "0 s", "0 s"),
        (59, "59 s", "59 s"),
        (60, "1 min", "1 min"),
        (3599, "59 min", "59 min"),
        (3600, "1 h 00", "1 h"),
        (14_280, "3 h 58", "3 h 58"),
        (47 * 3600 + 3599, "47 h 59", "47 h 59"),
        (48 * 3600, "2 d", "2 d"),
        (52 * 3600, "2 d 4 h", "2 d 4 h"),
        (-720, "−12 min", "−12 min"),
    ],
)
def test_durations(seconds, text, short):
    assert tags.duration(seconds) == text
    assert tags.duration(seconds, "short") == short
    assert tags.duration(timedelta(seconds=seconds)) == text


def test_runways_are_whole_days():
    assert tags.days(14 * 86_400 + 5) == "14"
    assert tags.days(100 * 86_400) == "99+"
    assert tags.days(None) == "–"


@pytest.mark.usefixtures("sao_paulo")
def test_instants_are_in_the_readers_zone():
    assert tags.instant(NOW) == "Thu 26 Nov 14:12"
    assert tags.instant(NOW, "seconds") == "14:12:08"
    assert tags.instant(datetime(2026, 11, 26, 2, 0, tzinfo=UTC), "day") == "Wednesday 25 November"
    assert tags.at(NOW, "time") == (
        '<time datetime="2026-11-26T17:12:08Z" title="26 Nov 2026 14:12, -03">14:12</time>'
    )


@pytest.mark.usefixtures("sao_paulo")
def test_ranges_name_the_day_only_where_it_turns():
    def hours(n: float) -> datetime:
        return NOW + timedelta(hours=n)

    assert tags.span(hours(1), hours(3), NOW) == "15:12 – 17:12"
    assert tags.span(hours(6), hours(14), NOW) == "20:12 – Fri 04:12"
    assert tags.span(hours(12), hours(17), NOW) == "Fri 02:12 – 07:12"
    assert tags.span(hours(24 * 14), hours(24 * 15), NOW) == "10 Dec 14:12 – Fri 14:12"
    assert tags.window_text(hours(3), hours(11), hours(6), NOW) == (
        "17:12 – Fri 01:12, likely 20:12"
    )
    assert tags.window(hours(1), hours(2), hours(1.5), NOW) == (
        '<span class="rng">15:12 – 16:12 <small>likely 15:42</small></span>'
    )
    assert tags.window(None, None) == "–"


def test_hues_beyond_the_checked_set_are_grey():
    assert [tags.hue(n) for n in (1, 12, 13, 0, None, "org")] == [
        "hue-1",
        "hue-12",
        "hue-0",
        "hue-0",
        "hue-0",
        "hue-org",
    ]


def test_a_heading_sorts_down_then_up_then_as_it_was():
    heading = '{% sort_header "age" "Waited" num=True %}'
    fresh = render(heading, "state=queued&page=3")
    assert 'href="?state=queued&amp;sort=-age"' in fresh
    assert "aria-sort" not in fresh
    down = render(heading, "state=queued&sort=-age")
    assert 'aria-sort="descending"' in down
    assert 'href="?state=queued&amp;sort=age"' in down
    up = render(heading, "state=queued&sort=age")
    assert 'aria-sort="ascending"' in up
    assert 'href="?state=queued"' in up


def test_filters_live_in_the_address():
    assert render('{% with_query pool="h100" %}', "q=x&page=2") == "?q=x&amp;pool=h100"
    assert render("{% with_query q=None %}", "q=x&page=2") == "?"
    assert render('{% keep_query "q" %}', "q=x&sort=-a%22b&page=2") == (
        '<input type="hidden" name="sort" value="-a&quot;b">'
    )


def test_a_bullet_bar_shows_settled_held_and_elapsed():
    html = render(
        '{% bullet name="Petrel" settled=s granted=g held=h elapsed=61510 hue=3 %}',
        s=7870,
        g=10000,
        h=100,
    )
    assert "Petrel: 78.7 % of its grant settled, 61.5 % of the period elapsed" in html
    assert '<rect class="f-hue" y="5" height="8" width="78.70%"/>' in html
    assert 'class="t-hue" y="5" height="8" x="78.70%" width="1.00%"' in html
    assert 'width="2" x="61.51%"' in html
    assert 'class="band" y="5" height="8" x="55.36%" width="12.30%"' in html


def test_a_bullet_bar_stays_inside_its_track():
    over = figures.bullet(name="x", settled=150, granted=100, held=20, elapsed=98_000)
    assert (over["settled"], over["later"]) == ("100.00%", "0.00%")
    assert over["band_width"] == "11.80%"  # 88.2 to 100
    empty = figures.bullet(name="x", settled=0, granted=0, elapsed=None)
    assert (empty["settled"], empty["band"], empty["elapsed"]) == ("0.00%", None, None)


def test_a_strip_holds_every_gpu_once():
    parts = [
        {"label": "Science", "value": 88, "hue": 3},
        {"label": "Parked", "value": 0, "pattern": "parked"},
        {"label": "Unfunded", "value": 12, "pattern": "unfunded"},
    ]
    html = render('{% strip parts "100 GPUs" "= 100 GPUs" %}', parts=parts)
    assert "<title>Science: 88 GPUs</title>" in html
    assert 'x="0.12%" y="1" height="22" width="87.76%" class="hue-3 f-hue"' in html
    assert 'fill="url(#pale-grey)"' in html
    assert "Parked" not in html


def test_a_spark_leaves_gaps_where_nothing_is_known():
    drawn = figures.spark([0, 1, None, 1], "Occupancy", aim=0.5)
    assert drawn["path"] == "M0.0 29.0L40.0 3.0M120.0 3.0"
    assert drawn["aim"] == "16.0"
    assert figures.spark([], "Nothing yet")["path"] == ""


def test_only_reasons_someone_must_act_on_are_red():
    assert "chip act" in render('{% reason "not_funded" %}Not funded: Petrel{% endreason %}')
    behind = render('{% reason "behind" %}{{ text }}{% endreason %}', text="Behind Auk <b>")
    assert "chip act" not in behind
    assert "#i-sort-ascending" in behind
    assert "Behind Auk &lt;b&gt;" in behind


def test_a_pager_keeps_the_filters():
    page = Paginator(range(211), 50).get_page(2)
    html = render("{% pager page %}", "state=queued&page=2", page=page)
    assert "51 – 100 of 211" in html
    assert 'rel="prev" href="?state=queued&amp;page=1"' in html
    assert 'rel="next" href="?state=queued&amp;page=3"' in html


def test_the_split_bar_leaves_the_reserve():
    rows = [
        {"slug": "a", "name": "A", "share": 60_000, "hue": 1},
        {"slug": "b", "name": "B", "share": 30_000, "hue": 2},
    ]
    html = render('{% split rows "Split" %}', rows=rows)
    assert 'data-seg="b" class="hue-2 f-hue" x="60.00%" y="4" width="30.00%"' in html
    assert 'data-seg="" x="90.00%" y="4" width="10.00%"' in html
