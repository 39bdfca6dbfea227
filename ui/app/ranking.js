// Sorts what is offered for a text that is typed. Pure functions.

/** Returns the options [name, ...] that have the text in their names: those that are it first, then those that begin with it. */
export function ranked(typed, options) {
  const wanted = typed.toLowerCase();
  const far = (name) => {
    const low = name.toLowerCase();
    if (low === wanted) return 0;
    return low.startsWith(wanted) ? 1 : 2;
  };
  return options
    .filter(([name]) => name.toLowerCase().includes(wanted))
    .map((option, index) => [far(option[0]), index, option])
    .sort(([a, first], [b, second]) => a - b || first - second)
    .map(([, , option]) => option);
}
