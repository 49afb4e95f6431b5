//! The division of numbered things into parts of equal size, up to one.

use std::ops::Range;

/// Returns the things of part `part` when `count` things are divided into `parts` parts in their
/// order.
pub(crate) fn part_of(count: usize, parts: usize, part: usize) -> Range<usize> {
    // The quotients are at most `count`.
    let begin = |part: usize| (count as u128 * part as u128 / parts.max(1) as u128) as usize;
    begin(part)..begin(part + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_adjacent_and_differ_by_one_at_most() {
        for count in 0..20 {
            for parts in 1..8 {
                let all: Vec<Range<usize>> =
                    (0..parts).map(|part| part_of(count, parts, part)).collect();
                let things: Vec<usize> = all.iter().cloned().flatten().collect();
                assert_eq!(things, (0..count).collect::<Vec<_>>());
                let sizes = all.iter().map(ExactSizeIterator::len);
                let (least, most) = (sizes.clone().min(), sizes.max());
                assert!(most.unwrap() <= least.unwrap() + 1);
            }
        }
        assert_eq!(part_of(usize::MAX, 2, 1).end, usize::MAX);
    }
}
