"""A sweep's page: Optuna's own figures of its study, and the table of its trials."""

from __future__ import annotations

import html
import warnings
from pathlib import Path

import plotly.graph_objects as go

from labkit.show.page import write_page
from labkit.sweeps import load_study, table


def sweep_figures(out: Path | str) -> dict[str, go.Figure]:
    """Optuna's figures of a sweep, by name: those for which it has enough finished trials.

    | figure | meaning |
    |---|---|
    | history | values in the order of the trials |
    | learning | scores during each trial |
    | importances | how much of the difference between good and bad trials each setting explains (PED-ANOVA) |
    | slice | value over each setting |
    | coordinates | all settings of a trial as one line |

    Source of PED-ANOVA: Watanabe, Bansal and Hutter 2023.

    Args:
        out: the sweep's folder.

    Raises:
        LabkitError: there is no such sweep.
    """
    import optuna
    from optuna import visualization

    study = load_study(out)
    complete = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    figures = {}
    if complete:
        figures["history"] = visualization.plot_optimization_history(study, target_name="value")
        figures["learning"] = visualization.plot_intermediate_values(study)
    if len(complete) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # Optuna's default needs scikit-learn
            figures["importances"] = visualization.plot_param_importances(study, evaluator=evaluator)
        figures["slice"] = visualization.plot_slice(study, target_name="value")
        figures["coordinates"] = visualization.plot_parallel_coordinate(study, target_name="value")
    for name, figure in figures.items():
        text = f"The {name} of {len(complete)} complete trials. Their numbers, the best first:"
        figure.update_layout(meta={"text": text, "table": _html_table(out)})
    return figures


def sweep_report(out: Path | str, path: Path | str) -> Path:
    """Writes a sweep's table and figures as an HTML page that opens without a network.

    Raises:
        LabkitError: there is no such sweep, or the page cannot be written.
    """
    told = f"<p>{html.escape(load_study(out).user_attrs['settings'])}. The lowest value is the best.</p>"
    return write_page(path, "labkit sweep", "A sweep", [told, _html_table(out), *sweep_figures(out).values()])


def _html_table(out: Path | str) -> str:
    return table(out).to_html(border=0, float_format="{:.4g}".format, na_rep="")
