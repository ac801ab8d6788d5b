# expects: 0 of 2 seeds reached the goal
my_entry = source("cyclegan").replace("FRUIT.steps", "8")
