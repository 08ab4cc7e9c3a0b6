"""From graded samples to figures: counts of a problem, votes, intervals, paired comparison."""
