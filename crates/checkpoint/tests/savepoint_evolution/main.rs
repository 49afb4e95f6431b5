//! Tests that values are readable as another type if the types are found compatible. The state
//! codec writes generated values, and reads them as values of changed types.
#![forbid(unsafe_code)]

mod made_up;
mod values;

use ardea_checkpoint::savepoint::{Evolution, evolve};
use ardea_codec::{schema_of, state_codec_of};
use ardea_core::Schema;
use proptest::prelude::*;

use made_up::MadeUp;
use values::{Dyn, Value, as_type, by_names, migrated};

/// Writes a value of the type `old`, and reads it as a value of the type `new`.
fn carried(value: &Value, old: &Schema, new: &Schema) -> ardea_core::Result<Value> {
    let codec = state_codec_of::<Dyn>().expect("it is kept");
    let mut bytes = Vec::new();
    as_type(old, || codec.put(&Dyn(value.clone()), &mut bytes))?;
    as_type(new, || codec.get(&bytes)).map(|read| read.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_chain_of_changes_that_is_found_to_fit_reads_what_was_written(
        seed in any::<u64>(), steps in 1usize..8,
    ) {
        let mut made_up = MadeUp::of(seed);
        let mut schema = made_up.schema(3);
        let mut value = made_up.value(&schema);
        for _ in 0..steps {
            let next = made_up.changed(&schema);
            match evolve(&schema, &next) {
                Evolution::Impossible(_) => continue,
                // The order of fields does not matter.
                Evolution::Same => prop_assert_eq!(
                    by_names(carried(&value, &schema, &next).unwrap()), by_names(value.clone())
                ),
                Evolution::Migrates(what) => prop_assert!(!what.is_empty()),
            }
            let expected = migrated(&value, &schema, &next);
            prop_assert!(expected.is_some(), "{:?} {:?} {:?}", value, schema, next);
            let read = carried(&value, &schema, &next);
            prop_assert!(read.is_ok(), "{:?}: {:?} {:?} {:?}", read, value, schema, next);
            prop_assert_eq!(read.ok(), expected.clone());
            value = expected.unwrap();
            schema = next;
        }
    }

    #[test]
    fn a_type_is_the_same_as_itself_and_reads_its_own_values(seed in any::<u64>()) {
        let mut made_up = MadeUp::of(seed);
        let schema = made_up.schema(3);
        prop_assert_eq!(evolve(&schema, &schema), Evolution::Same);
        let value = made_up.value(&schema);
        prop_assert_eq!(carried(&value, &schema, &schema).unwrap(), value);
    }

    #[test]
    fn what_a_type_looks_like_is_found_out_by_watching_it(seed in any::<u64>()) {
        let schema = MadeUp::of(seed).schema(3);
        let found = as_type(&schema, schema_of::<Dyn>);
        prop_assert_eq!(found, schema);
    }

    #[test]
    fn values_of_types_that_do_not_fit_are_errors_or_values_and_never_panics(
        seed in any::<u64>(), other in any::<u64>(),
    ) {
        let mut made_up = MadeUp::of(seed);
        let schema = made_up.schema(3);
        let value = made_up.value(&schema);
        let _ = carried(&value, &schema, &MadeUp::of(other).schema(3));
    }
}
