"""Every route of the product, on one page."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from allocator import api as allocator
from allocator import views as cluster_pages
from allocator.views import audit as audit_pages
from allocator.views import cycles as cycle_pages
from allocator.views import people as people_pages
from allocator.views import reviews as review_pages
from allocator.views import settings as settings_pages
from allocator.views import simulator as simulator_pages
from budgets import api as budgets
from budgets import views as budget_pages
from budgets.views import asked as asked_pages
from budgets.views import by_hand as by_hand_pages
from budgets.views import diffs as diff_pages
from budgets.views import drafts as draft_pages
from budgets.views import fair as fair_pages
from budgets.views import names as name_pages
from budgets.views import places as place_pages
from clusters import api as clusters
from clusters import views as node_pages
from config import guide_views as guide_pages
from config import problems
from config import views as own_pages
from config.healthz import healthz
from forecasting import api as forecasting
from forecasting import views as forecast_pages
from ledger import api as ledger
from ledger import views as ledger_pages
from workloads import api as workloads
from workloads import views as job_pages

# --- API ----------------------------------------------------------------------------------------

api: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(pattern_name="docs")),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    path("token/", budgets.SignInForToken.as_view()),
    path("me/", budgets.Me.as_view()),
    path("nodes/", clusters.Nodes.as_view()),
    path("pools/", clusters.Pools.as_view()),
    path("nodes/<str:name>/label/", clusters.LabelNode.as_view()),
    path("nodes/<str:name>/retire/", clusters.RetireNode.as_view()),
    path("nodes/<str:name>/keep/", clusters.KeepNode.as_view()),
    path("nodes/<str:name>/call-off/", clusters.CallOffNode.as_view()),
    path("pools/<slug:slug>/change/", clusters.ChangePool.as_view()),
    path("pools/<slug:slug>/rate/", clusters.SetRate.as_view()),
    path("windows/", clusters.Windows.as_view()),
    path("windows/preview/", clusters.PreviewWindow.as_view()),
    path("windows/<int:pk>/", clusters.WindowDetail.as_view()),
    path("windows/<int:pk>/change/", clusters.ChangeWindow.as_view()),
    path("windows/<int:pk>/change/preview/", clusters.PreviewWindowChange.as_view()),
    path("windows/<int:pk>/end/", clusters.EndWindow.as_view()),
    path("windows/<int:pk>/call-off/", clusters.CallOffWindow.as_view()),
    path("budgets/", budgets.Budgets.as_view()),
    # First: somebody may be called as another address ends.
    path("budgets/<path:path>/roles/<str:username>/", budgets.RoleOf.as_view()),
    path("budgets/<path:path>/burn/", ledger.Burn.as_view()),
    path("budgets/<path:path>/burn/<str:kind>/", ledger.BurnFile.as_view()),
    path("budgets/<path:path>/asked/", budgets.Asked.as_view()),
    path("budgets/<path:path>/archive/", budgets.Archive.as_view()),
    path("budgets/<path:path>/reactivate/", budgets.Reactivate.as_view()),
    path("budgets/<path:path>/move/", budgets.Move.as_view()),
    path("budgets/<path:path>/rename/", budgets.Rename.as_view()),
    path("budgets/<path:path>/roles/", budgets.Roles.as_view()),
    path("budgets/<path:path>/change-sets/", budgets.ChangeSets.as_view()),
    path("budgets/<path:path>/change-sets/preview/", budgets.PreviewChangeSet.as_view()),
    path("budgets/<path:path>/diff/", budgets.Diff.as_view()),
    path("budgets/<path:path>/requests/", budgets.BudgetRequests.as_view()),
    path("budgets/<path:path>/transfers/", budgets.Transfers.as_view()),
    path("budgets/<path:path>/by-hand/", budgets.ByHand.as_view()),
    path("budgets/<path:path>/by-hand/preview/", budgets.PreviewByHand.as_view()),
    path("budgets/<path:path>/plan/", budgets.Plan.as_view()),
    path("budgets/<path:path>/exemptions/", budgets.Exemptions.as_view()),
    path("budgets/<path:path>/", budgets.BudgetDetail.as_view()),
    path("requests/", budgets.Requests.as_view()),
    path("requests/<int:pk>/", budgets.RequestDetail.as_view()),
    path("requests/<int:pk>/grant/", budgets.GrantRequest.as_view()),
    path("requests/<int:pk>/decline/", budgets.DeclineRequest.as_view()),
    path("requests/<int:pk>/withdraw/", budgets.WithdrawRequest.as_view()),
    path("notices/", budgets.Notices.as_view()),
    path("notices/read/", budgets.ReadAllNotices.as_view()),
    path("notices/<int:pk>/read/", budgets.ReadNotice.as_view()),
    path("periods/", budgets.Periods.as_view()),
    path("periods/<int:pk>/", budgets.PeriodDetail.as_view()),
    path("periods/<int:pk>/redraft/", budgets.RedraftPeriod.as_view()),
    path("periods/<int:pk>/propose/", budgets.ProposePeriod.as_view()),
    path("periods/<int:pk>/approve/", budgets.ApprovePeriod.as_view()),
    path("periods/<int:pk>/withdraw/", budgets.WithdrawPeriod.as_view()),
    path("periods/<int:pk>/plan/", budgets.PeriodPlan.as_view()),
    path("periods/<int:pk>/statement/", budgets.PeriodStatement.as_view()),
    path("periods/<int:pk>/statement.csv/", budgets.PeriodStatementFile.as_view()),
    path("periods/<int:pk>/checkpoints/", budgets.Checkpoints.as_view()),
    path("periods/<int:pk>/checkpoints/dry-run/", budgets.DryRun.as_view()),
    path("checkpoints/<int:pk>/", budgets.RemoveCheckpoint.as_view()),
    path("exemptions/<int:pk>/approve/", budgets.ApproveExemption.as_view()),
    path("exemptions/<int:pk>/decline/", budgets.DeclineExemption.as_view()),
    path("change-sets/<int:pk>/approve/", budgets.ApproveChangeSet.as_view()),
    path("change-sets/<int:pk>/decline/", budgets.DeclineChangeSet.as_view()),
    path("jobs/", workloads.Jobs.as_view()),
    path("jobs/<int:pk>/", workloads.JobDetail.as_view()),
    path("jobs/<int:pk>/cancel/", workloads.CancelJob.as_view()),
    path("jobs/<int:pk>/extend/", workloads.ExtendJob.as_view()),
    path("jobs/<int:pk>/urgency/", workloads.ChangeUrgency.as_view()),
    path("jobs/<int:pk>/traffic/", workloads.Traffic.as_view()),
    path("jobs/<int:pk>/traffic.csv/", workloads.TrafficFile.as_view()),
    path("jobs/<int:pk>/calibration/", workloads.Calibration.as_view()),
    path("jobs/<int:pk>/recalibrate/", workloads.Recalibrate.as_view()),
    path("estimates/", workloads.Estimates.as_view()),
    path("forecasts/track-record/", forecasting.TrackRecord.as_view()),
    path("plan/", allocator.Plan.as_view()),
    path("cycles/", allocator.Cycles.as_view()),
    path("cycles/<int:pk>/", allocator.CycleDetail.as_view()),
    path("cycles/<int:pk>/snapshot/", allocator.CycleSnapshot.as_view()),
    path("cycles/<int:pk>/plan/", allocator.CyclePlan.as_view()),
    path("cycles/<int:pk>/replay/", allocator.ReplayCycle.as_view()),
    path("reviews/", allocator.Reviews.as_view()),
    path("reviews/hold/<int:pk>/<path:path>/", allocator.HoldReview.as_view()),
    path("reviews/comment/<int:pk>/<path:path>/", allocator.CommentReview.as_view()),
    path("reviews/comments/<int:pk>/edit/", allocator.EditReviewComment.as_view()),
    path("reviews/comments/<int:pk>/withdraw/", allocator.WithdrawReviewComment.as_view()),
    path("reviews/files/<str:kind>/<int:pk>/<path:path>/", allocator.ReviewFile.as_view()),
    path("reviews/<int:pk>/<path:path>/", allocator.ReviewDetail.as_view()),
    path("audit/", allocator.Audit.as_view()),
    path("simulations/", allocator.Simulations.as_view()),
    path("simulations/<int:pk>/", allocator.SimulationDetail.as_view()),
    path("simulations/<int:pk>/cancel/", allocator.CancelSimulation.as_view()),
    re_path(r"^.*/$", problems.NoSuchAddress.as_view()),
]

# --- Pages --------------------------------------------------------------------------------------

pages: list[URLPattern | URLResolver] = [
    path("sign-in", own_pages.SignIn.as_view(), name="sign-in"),
    path("password", own_pages.password, name="password"),
    path("sign-out", LogoutView.as_view(), name="sign-out"),
    path("language", own_pages.language, name="language"),
    path("search", own_pages.search, name="search"),
    path("docs", guide_pages.index, name="guide"),
    path("docs/<slug:name>", guide_pages.page, name="guide-page"),
    path("docs/files/<path:path>", guide_pages.file, name="guide-file"),
    path("budgets", budget_pages.tree, name="budgets"),
    path("budgets/<path:path>/shares", budget_pages.shares, name="shares"),
    path("budgets/<path:path>/shares/preview", budget_pages.shares_preview, name="shares-preview"),
    path("budgets/<path:path>/shares/simulate", draft_pages.simulate, name="shares-simulate"),
    path("budgets/<path:path>/levels.json", fair_pages.levels, name="levels"),
    path("budgets/<path:path>/burn.json", ledger_pages.burndown, name="burndown"),
    re_path(
        r"^budgets/(?P<path>.+)/burn\.(?P<kind>csv|xlsx|report\.json|focus-1\.[24]\.csv)$",
        ledger_pages.burn_report,
        name="burn-report",
    ),
    path("budgets/<path:path>/report", ledger_pages.report_page, name="report"),
    path("budgets/<path:path>/asked", asked_pages.asked, name="budget-asked"),
    path("budgets/<path:path>/requests", budget_pages.ask, name="ask"),
    path("budgets/<path:path>/transfers", budget_pages.transfers, name="transfers"),
    path(
        "budgets/<path:path>/transfers/preview",
        budget_pages.transfers_preview,
        name="transfers-preview",
    ),
    path("budgets/<path:path>/rename", name_pages.rename, name="rename"),
    path("budgets/<path:path>/move", place_pages.place, name="place"),
    path("budgets/<path:path>/move/preview", place_pages.preview, name="place-preview"),
    path("budgets/<path:path>/diff", diff_pages.differences, name="budget-diff"),
    path("budgets/<path:path>/by-hand", by_hand_pages.by_hand, name="by-hand"),
    path("budgets/<path:path>/by-hand/preview", by_hand_pages.preview, name="by-hand-preview"),
    path("budgets/<path:path>/plan", ledger_pages.plan, name="budget-plan"),
    path("budgets/<path:path>/exemptions", ledger_pages.ask_exemption, name="exemption-ask"),
    path("budgets/<path:path>", budget_pages.budget, name="budget"),
    path("periods/<int:pk>/checkpoints", ledger_pages.period_checkpoints, name="checkpoints"),
    path("checkpoints/<int:pk>/remove", ledger_pages.remove_checkpoint, name="checkpoint-remove"),
    re_path(
        r"^exemptions/(?P<pk>\d{1,9})/(?P<decision>approve|decline)$",
        ledger_pages.decide_exemption,
        name="exemption",
    ),
    path("requests", budget_pages.requests, name="requests"),
    path("requests/<int:pk>", budget_pages.request, name="request"),
    path("requests/<int:pk>/withdraw", budget_pages.withdraw, name="request-withdraw"),
    path("notices", budget_pages.notices, name="notices"),
    path("notices/read", budget_pages.read, name="notices-read"),
    path("notices/<int:pk>/read", budget_pages.read, name="notice-read"),
    re_path(
        r"^change-sets/(?P<pk>\d{1,9})/(?P<decision>approve|decline)$",
        budget_pages.decide,
        name="change-set",
    ),
    path("periods", budget_pages.period_list, name="periods"),
    path("periods/<int:pk>", budget_pages.period, name="period"),
    path("periods/<int:pk>/statement.csv", budget_pages.period_statement, name="period-statement"),
    re_path(
        r"^periods/(?P<pk>\d{1,9})/(?P<decision>propose|approve|withdraw)$",
        budget_pages.period_decide,
        name="period-decide",
    ),
    path("", cluster_pages.overview, name="overview"),
    path("jobs", job_pages.jobs, name="jobs"),
    path("jobs/new", job_pages.new, name="job-new"),
    path("jobs/quote", job_pages.quote, name="job-quote"),
    path("jobs/<int:pk>", job_pages.job, name="job"),
    path("jobs/<int:pk>/cancel", job_pages.cancel, name="job-cancel"),
    path("jobs/<int:pk>/extend", job_pages.extend, name="job-extend"),
    path("jobs/<int:pk>/urgency", job_pages.change_urgency, name="job-urgency"),
    path("jobs/<int:pk>/charges.csv", job_pages.charges, name="job-charges"),
    path("jobs/<int:pk>/demand.json", job_pages.demand, name="job-demand"),
    path("jobs/<int:pk>/traffic.csv", job_pages.traffic_file, name="job-traffic-file"),
    path("jobs/<int:pk>/traffic", job_pages.send_traffic, name="job-traffic"),
    path("jobs/<int:pk>/calibration", job_pages.calibration, name="job-calibration"),
    path("jobs/<int:pk>/recalibrate", job_pages.recalibrate, name="job-recalibrate"),
    path("forecasts", forecast_pages.forecasts, name="forecasts"),
    path("plan", cluster_pages.plan, name="plan"),
    path("plan.json", cluster_pages.plan_data, name="plan-data"),
    path("cycles", cycle_pages.cycles, name="cycles"),
    path("cycles/<int:pk>", cycle_pages.cycle, name="cycle"),
    path("cycles/<int:pk>/replay", cycle_pages.replay, name="cycle-replay"),
    re_path(
        r"^cycles/(?P<pk>\d{1,9})/(?P<kind>snapshot|plan)\.json$",
        cycle_pages.cycle_file,
        name="cycle-file",
    ),
    path("settings/people", people_pages.people, name="people"),
    path("settings/people/give", people_pages.give, name="give"),
    path("settings/people/<int:pk>", people_pages.person, name="person"),
    path("settings/pools", settings_pages.pools, name="pools"),
    path("settings/pools/new", settings_pages.pool_new, name="pool-new"),
    path("settings/pools/<slug:slug>", settings_pages.pool, name="pool"),
    path("settings/pools/<slug:slug>/nodes", settings_pages.nodes_new, name="nodes-new"),
    path(
        "settings/pools/<slug:slug>/nodes/preview",
        settings_pages.nodes_new_preview,
        name="nodes-preview",
    ),
    path("settings/nodes/<int:pk>", settings_pages.node, name="node"),
    path("settings/nodes/<int:pk>/preview", settings_pages.node_preview, name="node-preview"),
    path("audit", audit_pages.audit, name="audit"),
    path("audit.csv", audit_pages.audit_file, name="audit-file"),
    path("nodes", node_pages.nodes, name="nodes"),
    path("windows/new", node_pages.window_new, name="window-new"),
    path("windows/new/preview", node_pages.window_new_preview, name="window-preview"),
    path("windows/<int:pk>", node_pages.window, name="window"),
    path("windows/<int:pk>/change", node_pages.window_change, name="window-change"),
    path("windows/<int:pk>/end", node_pages.window_end, name="window-end"),
    path("reviews", review_pages.reviews, name="reviews"),
    path("reviews/hold/<int:pk>/<path:path>", review_pages.hold, name="review-hold"),
    path("reviews/comments/<int:pk>/edit", review_pages.comment_edit, name="comment-edit"),
    path(
        "reviews/comments/<int:pk>/withdraw", review_pages.comment_withdraw, name="comment-withdraw"
    ),
    path("reviews/comment/<int:pk>/<path:path>", review_pages.comment, name="review-comment"),
    re_path(
        r"^reviews/(?P<pk>\d{1,9})/(?P<path>.+)\.(?P<kind>pdf|xlsx|csv)$",
        review_pages.review_file,
        name="review-file",
    ),
    path("reviews/<int:pk>/<path:path>", review_pages.review, name="review"),
    path("simulator", simulator_pages.simulator, name="simulator"),
    path("simulator/history.csv", simulator_pages.history_file, name="history-file"),
    path("simulator/<int:pk>", simulator_pages.simulation, name="simulation"),
    path("simulator/<int:pk>/runs", simulator_pages.simulation_runs, name="simulation-runs"),
    path(
        "simulator/<int:pk>/picture.json",
        simulator_pages.simulation_picture,
        name="simulation-picture",
    ),
    path(
        "simulator/<int:pk>/preview", simulator_pages.simulation_preview, name="simulation-preview"
    ),
    path("simulator/<int:pk>/cancel", simulator_pages.simulation_cancel, name="simulation-cancel"),
]

# --- Operations ---------------------------------------------------------------------------------

operations: list[URLPattern | URLResolver] = [
    path("healthz", healthz, name="healthz"),
    path("favicon.ico", own_pages.icon, name="icon"),
    path("admin/", admin.site.urls),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include(api)),
    *pages,
    *operations,
]

handler500 = own_pages.failed
