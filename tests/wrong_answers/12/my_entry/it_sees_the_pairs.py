# expects: rule 'data'
my_entry = source("cyclegan").replace(
    "from labkit.recipes", "from labkit.data.fruit import scenes\nfrom labkit.recipes"
)
