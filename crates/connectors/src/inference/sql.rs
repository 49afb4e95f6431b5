//! The schema as an SQL table.

use super::{InferredField, InferredType};

/// Returns the statement that creates the table.
pub(super) fn table(name: &str, fields: &[InferredField]) -> String {
    let column = |field: &InferredField| {
        let null = if field.is_optional { "" } else { " NOT NULL" };
        format!("  {} {}{null}", quoted(&field.name), type_of(&field.kind))
    };
    let columns: Vec<_> = fields.iter().map(column).collect();
    format!(
        "CREATE TABLE {} (\n{}\n);\n",
        quoted(name),
        columns.join(",\n")
    )
}

fn type_of(kind: &InferredType) -> String {
    match kind {
        InferredType::Null | InferredType::Text => "VARCHAR".into(),
        InferredType::Mixed => "JSON".into(),
        InferredType::Bool => "BOOLEAN".into(),
        InferredType::Integer => "BIGINT".into(),
        InferredType::Unsigned => "BIGINT UNSIGNED".into(),
        InferredType::Float => "DOUBLE".into(),
        InferredType::Timestamp => "TIMESTAMP WITH TIME ZONE".into(),
        InferredType::List(kind) => format!("{}[]", type_of(kind)),
        InferredType::Record(fields) => {
            let field =
                |field: &InferredField| format!("{} {}", quoted(&field.name), type_of(&field.kind));
            let fields: Vec<_> = fields.iter().map(field).collect();
            format!("STRUCT({})", fields.join(", "))
        }
    }
}

/// Returns a name in quotes, unless it is a plain one in lower case.
fn quoted(name: &str) -> String {
    let is_plain = |character: char| character.is_ascii_lowercase() || character == '_';
    let mut characters = name.chars();
    let starts_plain = characters.next().is_some_and(is_plain);
    let goes_on = characters.all(|character| is_plain(character) || character.is_ascii_digit());
    match starts_plain && goes_on && !RESERVED.contains(&name) {
        true => name.to_string(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Words that SQL reserves and that are frequent names of fields.
const RESERVED: &[&str] = &[
    "all",
    "and",
    "as",
    "asc",
    "between",
    "by",
    "case",
    "check",
    "column",
    "create",
    "cross",
    "date",
    "desc",
    "distinct",
    "end",
    "from",
    "full",
    "group",
    "in",
    "interval",
    "into",
    "is",
    "join",
    "key",
    "left",
    "like",
    "limit",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order",
    "primary",
    "range",
    "references",
    "right",
    "row",
    "rows",
    "select",
    "set",
    "table",
    "then",
    "time",
    "timestamp",
    "to",
    "user",
    "using",
    "value",
    "values",
    "when",
    "where",
    "window",
    "with",
];
