//! Tests of compile errors for wrong use, and of their messages.

#[test]
fn wrong_use_is_refused_with_a_readable_reason() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
