"""A sweep's page: Optuna's own figures of its study, and the table of its trials."""

from __future__ import annotations

import html
import json
import warnings
from pathlib import Path

import plotly.graph_objects as go

from labkit.files import atomic_write
from labkit.sweeps import journal
from labkit.sweeps.sweep import table

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>labkit sweep</title><style>
body {{ font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; font-size: 0.85em; display: block; overflow-x: auto; }}
td, th {{ padding: 0.3em 0.7em; text-align: left; border-bottom: 1px solid #ddd; }}
</style></head><body><h1>A sweep</h1>
<p>The value of a trial is how far its pictures fall short of the goal at its end: fg and bg as shares of their goals,
of which the larger counts. 1 or less has reached the goal; lower is better.</p>
<p>{settings}</p>
{table}
{figures}
</body></html>"""


def sweep_figures(storage: Path | str) -> dict[str, go.Figure]:
    """Optuna's figures of a sweep, by name: those for which it has enough finished trials.

    "history": values in the order of the trials. "learning": values during each trial. "importances": how much of the
    difference between good and bad trials each setting explains (PED-ANOVA; Watanabe, Bansal, Hutter 2023). "slice":
    value over each setting. "coordinates": all settings of a trial as one line.

    Raises:
        LabkitError: there is no such sweep.
    """
    journal.check_optuna()
    import optuna
    from optuna import visualization

    study = journal.open_to_read(Path(storage))
    complete = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    figures = {}
    if complete:
        figures["history"] = visualization.plot_optimization_history(study, target_name="shortfall")
        figures["learning"] = visualization.plot_intermediate_values(study)
        figures["learning"].update_layout(title="Shortfall during the trials")
    if len(complete) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # Optuna's default needs scikit-learn
            figures["importances"] = visualization.plot_param_importances(
                study, evaluator=evaluator, target_name="shortfall"
            )
        figures["slice"] = visualization.plot_slice(study, target_name="shortfall")
        figures["coordinates"] = visualization.plot_parallel_coordinate(study, target_name="shortfall")
    return figures


def sweep_report(storage: Path | str, path: Path | str) -> Path:
    """Writes a sweep's table and figures as an HTML page that opens without a network.

    Raises:
        LabkitError: there is no such sweep, or the page cannot be written.
    """
    trials, path = table(storage), Path(path)
    settings = journal.open_to_read(Path(storage)).user_attrs.get("settings", {})
    figures = [
        figure.to_html(full_html=False, include_plotlyjs=number == 0)
        for number, figure in enumerate(sweep_figures(storage).values())
    ]
    page = PAGE.format(
        settings=html.escape(", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items())),
        table=trials.to_html(border=0, float_format="{:.4g}".format, na_rep=""),
        figures="\n".join(figures),
    )
    with atomic_write(path) as part:
        part.write_text(page, encoding="utf-8")
    return path
