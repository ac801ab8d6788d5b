"""A sweep's page: Optuna's own figures of its study, and the table of its trials."""

from __future__ import annotations

import html
import json
import warnings
from pathlib import Path

import plotly.graph_objects as go

from labkit.show.page import write_page
from labkit.sweeps import journal
from labkit.sweeps.sweep import table

HOW = """<p>The value of a trial is how far its pictures fall short of the goal at its end: fg and bg as shares of their
goals, of which the larger counts. 1 or less has reached the goal; lower is better.</p>"""


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
    trials = _html_table(storage)
    for name, figure in figures.items():
        text = f"The {name} of {len(complete)} complete trials. Their numbers, the best first:"
        figure.update_layout(meta={"text": text, "table": trials})
    return figures


def sweep_report(storage: Path | str, path: Path | str) -> Path:
    """Writes a sweep's table and figures as an HTML page that opens without a network.

    Raises:
        LabkitError: there is no such sweep, or the page cannot be written.
    """
    settings = journal.open_to_read(Path(storage)).user_attrs.get("settings", {})
    told = ", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items())
    parts = [HOW, f"<p>{html.escape(told)}</p>", _html_table(storage), *sweep_figures(storage).values()]
    return write_page(path, "labkit sweep", "A sweep", parts)


def _html_table(storage: Path | str) -> str:
    return table(storage).to_html(border=0, float_format="{:.4g}".format, na_rep="")
