//! Tests of state diffs with given shapes.

use ardea_core::{ErrorCode, Schema, StateShape};

use super::*;

fn values(value: Schema) -> StateShape {
    StateShape::of_values("keys", Some(Schema::Text), value)
}

fn verdicts(found: &StateDiff) -> Vec<(String, &'static str)> {
    let states = found.states.iter();
    states
        .map(|state| {
            (
                format!("{}/{}", state.vertex, state.state),
                state.verdict.word(),
            )
        })
        .collect()
}

fn expected(rows: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
    rows.iter()
        .map(|(name, word)| (name.to_string(), *word))
        .collect()
}

#[test]
fn each_state_is_kept_migrated_dropped_added_or_impossible() {
    let old = JobStateSchema::default()
        .with("counts", [values(Schema::I64)])
        .with("gone", [values(Schema::I64), StateShape::own("told")])
        .with("lines", [StateShape::own("files")])
        .with("narrow", [values(Schema::I64)])
        .with("wide", [values(Schema::I32)]);
    let new = JobStateSchema::default()
        .with("counts", [values(Schema::I64)])
        .with("lines", [])
        .with("narrow", [values(Schema::I32)])
        .with("tops", [values(Schema::Text)])
        .with("wide", [values(Schema::I64)]);
    let found = diff(&old, &new, &AllowedDrops::of(["gone/told"]));
    let rows = [
        ("counts/keys", "keep"),
        ("gone/keys", "impossible"),
        ("gone/told", "drop"),
        ("lines/files", "keep"),
        ("narrow/keys", "impossible"),
        ("tops/keys", "add"),
        ("wide/keys", "migrate"),
    ];
    assert_eq!(verdicts(&found), expected(&rows));
    let error = found.check("words", "here").unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    for part in [
        "gone/keys",
        "\"gone\"",
        "narrow/keys",
        "i64 can't be read as i32",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert!(error.hint_text().unwrap().contains("recovery.drop"));
    let found = diff(&old, &new, &AllowedDrops::listed("gone, narrow/keys"));
    assert!(found.is_possible() && !found.is_same());
}

#[test]
fn a_program_that_is_the_same_keeps_all() {
    let states = JobStateSchema::default()
        .with("counts", [values(Schema::I64)])
        .with("lines", [StateShape::own("files")])
        .with("plain", []);
    let found = diff(&states, &states, &AllowedDrops::nothing());
    assert!(found.is_same() && found.is_possible());
    assert_eq!(found.states.len(), 2);
}

#[test]
fn what_is_to_be_dropped_has_to_be_there() {
    let states = JobStateSchema::default().with("counts", [values(Schema::I64)]);
    let found = diff(&states, &states, &AllowedDrops::listed("count"));
    assert_eq!(found.unknown, ["count"]);
    let error = found.check("words", "here").unwrap_err();
    assert!(error.to_string().contains("\"count\""), "{error}");
    assert!(diff(&states, &states, &AllowedDrops::listed("counts")).is_possible());
}

#[test]
fn a_state_that_became_another_kind_of_state_is_impossible() {
    let with = |state| JobStateSchema::default().with("counts", [state]);
    let own = with(StateShape::own("keys"));
    let named = with(values(Schema::I64));
    let nameless = with(StateShape::of_values("keys", None, Schema::I64));
    for (old, new) in [(&own, &named), (&named, &own), (&named, &nameless)] {
        assert!(!diff(old, new, &AllowedDrops::nothing()).is_possible());
    }
    // A window of another length stores its slices under another name.
    let other = with(StateShape::of_values(
        "slices of 2s",
        Some(Schema::Text),
        Schema::I64,
    ));
    let found = diff(&named, &other, &AllowedDrops::nothing());
    assert_eq!(
        verdicts(&found),
        expected(&[
            ("counts/keys", "impossible"),
            ("counts/slices of 2s", "add")
        ])
    );
    let why = found.impossible().next().unwrap().verdict.reasons();
    assert!(why[0].contains("but \"slices of 2s\""), "{why:?}");
}

#[test]
fn keys_may_only_change_where_their_canonical_bytes_stay() {
    let with = |key| {
        let shape = StateShape::of_values("keys", Some(key), Schema::I64);
        JobStateSchema::default().with("counts", [shape])
    };
    let possible = |old: Schema, new: Schema| {
        diff(&with(old), &with(new), &AllowedDrops::nothing()).is_possible()
    };
    assert!(possible(Schema::I16, Schema::I64) && possible(Schema::U32, Schema::I64));
    assert!(!possible(Schema::I64, Schema::I128) && !possible(Schema::I64, Schema::I16));
    assert!(!possible(
        Schema::Text,
        Schema::Option(Box::new(Schema::Text))
    ));
    let pair = |second| Schema::Tuple(vec![Schema::Text, second]);
    assert!(possible(pair(Schema::I8), pair(Schema::I32)));
    assert!(!possible(pair(Schema::I8), Schema::Text));
}

#[test]
fn what_the_runtime_keeps_is_its_own_business() {
    let old = JobStateSchema::default().with("map-2", [StateShape::own("@watermark")]);
    let found = diff(&old, &JobStateSchema::default(), &AllowedDrops::nothing());
    assert!(found.states.is_empty() && found.is_possible());
    assert_eq!(found.to_string(), "there is no state\n");
}

#[test]
fn what_is_kept_by_places_stays_as_it_is_or_is_impossible() {
    let placed = |of: Schema| Schema::Placed(Box::new(of));
    let of = |value| JobStateSchema::default().with("counts", [values(value)]);
    let word = |old, new| {
        let found = diff(&of(old), &of(new), &AllowedDrops::nothing());
        found.states[0].verdict.word()
    };
    assert_eq!(word(placed(Schema::I32), placed(Schema::I32)), "keep");
    assert_eq!(word(placed(Schema::I32), placed(Schema::I64)), "impossible");
    assert_eq!(word(placed(Schema::I32), Schema::I32), "impossible");
    assert_eq!(word(Schema::I32, placed(Schema::I32)), "impossible");
}

#[test]
fn a_state_is_lost_with_its_vertex_and_why_is_told_of_one_that_nobody_named() {
    let mut old = JobStateSchema::default()
        .with("counts", [values(Schema::I64)])
        .with("counts: partial", [values(Schema::I64)])
        .with("map-2", [values(Schema::I64)]);
    for inner in ["counts: partial", "map-2"] {
        let vertex = old.vertices.get_mut(inner).unwrap();
        vertex.has_generated_name = true;
    }
    let found = diff(&old, &JobStateSchema::default(), &AllowedDrops::nothing());
    let why = |vertex: &str| {
        let mut states = found.states.iter();
        match &states.find(|it| it.vertex == vertex).unwrap().verdict {
            Verdict::Impossible(why) => why.join(""),
            other => panic!("{other:?}"),
        }
    };
    assert!(why("map-2").contains("may be a generated name"));
    // `counts: partial` is a part of `counts`, which has a user-defined name.
    for named in ["counts", "counts: partial"] {
        assert!(!why(named).contains("generated name"), "{}", why(named));
    }
}
