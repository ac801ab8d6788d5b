# expects: the word alone
def bound_by(numbers):
    names = sorted((name for name in numbers if name.startswith("cost_of_")), key=numbers.get)
    second, first = names[-2:]
    return first if numbers[first] >= 0.1 and numbers[first] >= 2 * numbers[second] else "several"
