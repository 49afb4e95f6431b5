//! Wrong use does not compile, and the compiler says in the project's words why.

#[test]
fn wrong_use_is_refused_with_a_readable_reason() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
