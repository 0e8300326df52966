"""How the installation is set up: pools, their rates and their nodes."""

from collections.abc import Callable
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from allocator import installing, inventory
from allocator.forms.settings import (
    LabelForm,
    NodesForm,
    PoolForm,
    PoolNameForm,
    RateForm,
    ReasonForm,
    RetireForm,
)
from allocator.pages import inventory as node_pages
from allocator.pages import pools as pages
from clusters.refusals import Refused
from config.clock import now

MOST_COMMON = 8  # GPUs of a node
UNDO = {"keep": inventory.keep, "call_off": inventory.call_off}


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def pools(request: HttpRequest) -> HttpResponse:
    """Every pool with its rates; administrators of the organisation set another."""
    page = pages.page(request.user, now=now())
    _check(request, page)
    form = RateForm(request.POST or None, pools=[line.pool for line in page.lines])
    if form.is_valid():
        try:
            made = installing.set_rate(**_who(request), **form.arguments)
        except Refused as refused:
            form.refuse(refused)
        else:
            words = {"name": made.pool.name, "rate": installing.shown(made.rate_per_mille)}
            messages.success(request, _("%(name)s: rate %(rate)s is set.") % words)
            return redirect("pools")
    return _shown(request, "allocator/pools.html", form, page=page)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def pool_new(request: HttpRequest) -> HttpResponse:
    """Make a pool."""
    node_pages.require(request.user)
    form = PoolForm(request.POST or None, clusters=node_pages.all_clusters())
    if form.is_valid():
        asked = form.arguments
        if _did(form, lambda: installing.add_pool(**_who(request), **asked)):
            messages.success(request, _("The pool is made; now name its nodes."))
            return redirect("nodes-new", slug=asked["slug"].strip())
    return _shown(request, "allocator/pool_new.html", form)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def pool(request: HttpRequest, slug: str) -> HttpResponse:
    """One pool with its nodes; administrators call it otherwise."""
    page = node_pages.pool_page(request.user, slug, now=now())
    _check(request, page)
    form = PoolNameForm(request.POST or None, pool=page.pool)
    if form.is_valid():
        asked = {"pool": page.pool, **form.cleaned_data}
        if _did(form, lambda: installing.change_pool(**_who(request), **asked)):
            messages.success(request, _("It is done, and stands in the audit log."))
            return redirect("pool", slug=slug)
    return _shown(request, "allocator/pool.html", form, page=page)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def nodes_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Add nodes to a pool; looked at first, done when it is confirmed."""
    node_pages.require(request.user)
    pool = node_pages.find_pool(slug)
    form, does = _adding(request, pool)
    if does is not None and form.confirms:
        asked = {"pool": pool, **form.cleaned_data}
        if _did(form, lambda: inventory.add_nodes(**_who(request), **asked)):
            messages.success(request, _("The nodes are added; plans count on them from then on."))
            return redirect("pool", slug=slug)
    return _shown(request, "allocator/nodes_new.html", form, pool=pool, does=does)


@require_POST
@login_required
def nodes_new_preview(request: HttpRequest, slug: str) -> HttpResponse:
    """What the nodes that are being typed would do; nothing is written."""
    node_pages.require(request.user)
    pool = node_pages.find_pool(slug)
    form, does = _adding(request, pool)
    context = {"form": form, "does": does, "live": True, "now": now()}
    return render(request, "allocator/_nodes_new_does.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def node(request: HttpRequest, pk: int) -> HttpResponse:
    """One node; administrators label it, take it out of use, or leave it in use."""
    page = node_pages.node_page(request.user, pk, now=now())
    _check(request, page)
    does, forms = None, _forms(page, None)
    do = request.POST.get("do", "")
    if request.method == "POST":
        forms, does, done = _changed(request, page, do)
        if done:
            messages.success(request, _("It is done, and stands in the audit log."))
            gone = do == "call_off"
            return redirect("pool", page.node.pool.slug) if gone else redirect("node", pk)
    form = next((one for one in forms.values() if one.errors), forms["retire"])
    return _shown(request, "allocator/node.html", form, page=page, does=does, **forms)


@require_POST
@login_required
def node_preview(request: HttpRequest, pk: int) -> HttpResponse:
    """What taking a node out of use would do; nothing is written."""
    node_pages.require(request.user)
    form = RetireForm(request.POST)
    does = _retiring(form, node_pages.find_node(pk))
    context = {"retire": form, "does": does, "live": True, "now": now()}
    return render(request, "allocator/_node_does.html", context)


def _adding(request: HttpRequest, pool: Any) -> tuple[NodesForm, node_pages.Does | None]:
    last = pool.nodes.order_by("position").last()
    form = NodesForm(request.POST or None, gpus=last.gpus if last else MOST_COMMON)
    if form.looks():
        try:
            made = inventory.proposed_nodes(pool=pool, now=now(), **form.cleaned_data)
            return form, node_pages.added(made)
        except Refused as refused:
            form.refuse(refused)
    return form, None


def _retiring(form: RetireForm, node: Any) -> node_pages.Does | None:
    if form.looks():
        try:
            asked = inventory.proposed_retirement(node=node, now=now(), **form.cleaned_data)
            inventory.refuse_under_a_run(asked)
            return node_pages.retired(asked)
        except Refused as refused:
            form.refuse(refused)
    return None


def _forms(page: node_pages.NodePage, data: Any, do: str = "") -> dict[str, Any]:
    """The forms of a node's page; what was posted is in the one that it belongs to."""
    return {
        "label": LabelForm(data if do == "label" else None, node=page.node),
        "retire": RetireForm(data if do in ("look", "set") else None),
        "undo": ReasonForm(data if do in UNDO else None),
    }


def _changed(
    request: HttpRequest, page: node_pages.NodePage, do: str
) -> tuple[dict[str, Any], node_pages.Does | None, bool]:
    """Do what a button asks: the forms, what is only looked at, and whether it is done."""
    forms = _forms(page, request.POST, do)
    about: dict[str, Any] = {"node": page.node, **_who(request)}
    label, retire, undo = forms.values()
    does = _retiring(retire, page.node) if do in ("look", "set") else None
    done = False
    if does is not None and do == "set":
        done = _did(retire, lambda: inventory.retire(**about, **retire.cleaned_data))
    elif do == "label" and label.is_valid():
        done = _did(label, lambda: inventory.label_node(**about, **label.cleaned_data))
    elif do in UNDO and undo.is_valid():
        done = _did(undo, lambda: UNDO[do](**about, **undo.cleaned_data))
    return forms, does, done


def _did(form: Any, do: Callable[[], object]) -> bool:
    """Do something; what is refused stands in the form."""
    try:
        do()
    except Refused as refused:
        form.refuse(refused)
        return False
    return True


def _who(request: HttpRequest) -> dict[str, Any]:
    return {"by": cast(User, request.user), "now": now()}


def _check(request: HttpRequest, page: Any) -> None:
    if request.method == "POST" and not page.may_change:
        raise PermissionDenied


def _shown(request: HttpRequest, template: str, form: Form, **more: Any) -> HttpResponse:
    context = {"form": form, "now": now(), "nav_current": "pools", **more}
    status = 422 if form.is_bound and form.errors else 200
    return render(request, template, context, status=status)
