//! Names of types and fields in the languages of the output.

/// Returns the words of a name, in lower case: `dateTime`, `date-time` and `DATE_TIME` have two.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut starts_word = true;
    let mut was_lower = false;
    for character in name.chars() {
        if !character.is_ascii_alphanumeric() {
            starts_word = true;
            continue;
        }
        starts_word |= was_lower && character.is_ascii_uppercase();
        was_lower = character.is_ascii_lowercase() || character.is_ascii_digit();
        let lower = character.to_ascii_lowercase();
        match words.last_mut() {
            Some(word) if !starts_word => word.push(lower),
            _ => words.push(lower.to_string()),
        }
        starts_word = false;
    }
    words
}

/// Returns the name of a field in snake case, which is not one of `reserved`.
pub(super) fn field_name(name: &str, reserved: &[&str]) -> String {
    let mut field = words(name).join("_");
    if field.is_empty() || field.starts_with(|first: char| first.is_ascii_digit()) {
        field.insert_str(0, "field_");
    }
    if reserved.contains(&field.as_str()) {
        field.push('_');
    }
    field
}

/// Returns the name of a type in camel case.
pub(super) fn type_name(name: &str) -> String {
    let mut camel = String::new();
    for word in words(name) {
        let (first, rest) = word.split_at(1);
        camel.push_str(&first.to_ascii_uppercase());
        camel.push_str(rest);
    }
    match camel.starts_with(|first: char| first.is_ascii_alphabetic()) {
        true => camel,
        false => format!("Record{camel}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_style_become_those_of_the_language() {
        let fields = ["dateTime", "date-time", "DATE_TIME", "date time"];
        assert!(
            fields
                .iter()
                .all(|name| field_name(name, &[]) == "date_time")
        );
        assert_eq!(field_name("type", &["type"]), "type_");
        assert_eq!(
            (field_name("2nd", &[]), field_name("é", &[])),
            ("field_2nd".into(), "field_".into())
        );
        assert_eq!(
            (type_name("date_time"), type_name("2nd")),
            ("DateTime".into(), "Record2nd".into())
        );
    }
}
