from labkit.speedrun.entry import Entry as Entry
from labkit.speedrun.judge import Heat as Heat
from labkit.speedrun.judge import Judge as Judge
from labkit.speedrun.judge import verdict as verdict
from labkit.speedrun.rules import RULES as RULES
from labkit.speedrun.rules import BrokenRule as BrokenRule
