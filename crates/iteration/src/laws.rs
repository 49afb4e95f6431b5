//! Checks of user-defined merges, for property tests.
//!
//! ```
//! use ardea_iteration::{Counter, laws};
//!
//! // A property test generates the three updates.
//! laws::check_merge(&Counter(1), &Counter(20), &Counter(300))?;
//! # Ok::<(), String>(())
//! ```

use std::fmt::Debug;

use crate::merge::Merge;

/// Checks that the merge of three updates is associative and commutative, and that the updates are
/// decoded as they were encoded.
///
/// # Errors
/// A description of the broken law, with the updates.
pub fn check_merge<M: Merge + Clone + PartialEq + Debug>(
    a: &M,
    b: &M,
    c: &M,
) -> Result<(), String> {
    check_merge_by(a, b, c, PartialEq::eq)
}

/// Checks the same with `is_equal` for the comparison of results: sums of floating-point numbers
/// are associative up to rounding only.
///
/// # Errors
/// A description of the broken law, with the updates.
pub fn check_merge_by<M: Merge + Clone + Debug>(
    a: &M,
    b: &M,
    c: &M,
    is_equal: impl Fn(&M, &M) -> bool,
) -> Result<(), String> {
    let merged = |x: &M, y: &M| {
        let mut merged = x.clone();
        merged.merge(y.clone());
        merged
    };
    let law = |name: &str, left: M, right: M| match is_equal(&left, &right) {
        true => Ok(()),
        false => Err(format!(
            "the merge is not {name} for {a:?}, {b:?} and {c:?}: {left:?} differs from {right:?}"
        )),
    };
    law("commutative", merged(a, b), merged(b, a))?;
    law(
        "associative",
        merged(&merged(a, b), c),
        merged(a, &merged(b, c)),
    )?;
    for update in [a, b, c] {
        let decoded = postcard::to_allocvec(update)
            .and_then(|bytes| postcard::from_bytes::<M>(&bytes))
            .map_err(|error| format!("{update:?} can't be encoded and decoded: {error}"))?;
        law("independent of its encoding", decoded, update.clone())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::merge::{Counter, Highest, Lowest, Total};
    use crate::vector::{SparseVector, VectorUpdate};

    fn counts() -> impl Strategy<Value = BTreeMap<u8, Counter>> {
        prop::collection::btree_map(0..8_u8, any::<u64>().prop_map(Counter), 0..6)
    }

    /// Vectors of small integers, which are added without rounding.
    fn vectors() -> impl Strategy<Value = VectorUpdate> {
        let components = prop::collection::vec((any::<bool>(), -100..100_i32), 12);
        (components, any::<bool>()).prop_map(|(components, is_dense)| {
            let numbers = components.into_iter().map(|(is_set, number)| match is_set {
                true => f64::from(number),
                false => 0.0,
            });
            let numbers: Vec<f64> = numbers.collect();
            match is_dense {
                true => VectorUpdate::Dense(numbers),
                false => VectorUpdate::Sparse(SparseVector::from_dense(&numbers)),
            }
        })
    }

    fn same_numbers(a: &VectorUpdate, b: &VectorUpdate) -> bool {
        a.to_dense() == b.to_dense()
    }

    proptest! {
        #[test]
        fn merges_of_the_crate_fulfil_the_laws(
            maps in [counts(), counts(), counts()],
            vectors in [vectors(), vectors(), vectors()],
            numbers: [u64; 3],
        ) {
            let [a, b, c] = &maps;
            check_merge(a, b, c).unwrap();
            let [a, b, c] = &vectors;
            check_merge_by(a, b, c, same_numbers).unwrap();
            let [a, b, c] = numbers;
            check_merge(&Highest(a), &Highest(b), &Highest(c)).unwrap();
            check_merge(&Lowest(a), &Lowest(b), &Lowest(c)).unwrap();
            let whole = |n: u64| Total((n % 1000) as f64);
            check_merge(&(whole(a), Counter(a)), &(whole(b), Counter(b)), &(whole(c), Counter(c))).unwrap();
        }
    }

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Last(u32);

    impl Merge for Last {
        fn merge(&mut self, other: Self) {
            self.0 = other.0;
        }
    }

    #[test]
    fn a_merge_that_depends_on_the_order_is_found() {
        let found = check_merge(&Last(1), &Last(2), &Last(3)).unwrap_err();
        assert!(found.starts_with("the merge is not commutative"), "{found}");
    }
}
