from django.db import migrations


def give_each_drain_a_window(apps, schema_editor):
    """Drains that were set in the admin pages: nobody knows by whom and when."""
    drain_model = apps.get_model("clusters", "Drain")
    window_model = apps.get_model("clusters", "Window")
    event_model = apps.get_model("clusters", "WindowEvent")
    for drain in drain_model.objects.filter(window=None).select_related("node").order_by("pk"):
        span = {
            "starts_at": drain.starts_at,
            "ends_at": drain.ends_at,
            "reason": drain.reason or "maintenance",
        }
        window = window_model.objects.create(**span)
        event_model.objects.create(
            window=window,
            version=1,
            kind="set",
            at=drain.starts_at,
            nodes=[drain.node.name],
            **span,
        )
        drain_model.objects.filter(pk=drain.pk).update(window=window)


class Migration(migrations.Migration):
    """By itself, since PostgreSQL alters no table whose rows were written in the transaction."""

    dependencies = (("clusters", "0003_windows"),)

    operations = (migrations.RunPython(give_each_drain_a_window, migrations.RunPython.noop),)
