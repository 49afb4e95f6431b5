//! The schema as Python classes.

use std::fmt::Write;

use super::names::{field_name, type_name};
use super::{InferredField, InferredType};

const RESERVED: &[&str] = &[
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Returns the classes, the inner ones first, since annotations name them.
pub(super) fn classes(name: &str, fields: &[InferredField]) -> String {
    let name = type_name(name);
    let mut body = String::new();
    let mut inner = String::new();
    // Fields with a default follow those without.
    let (optional, required): (Vec<_>, Vec<_>) = fields.iter().partition(|field| field.is_optional);
    for field in required.into_iter().chain(optional) {
        let own = field_name(&field.name, RESERVED);
        let kind = type_of(&field.name, &field.kind, &name, &mut inner);
        let _ = write!(body, "    {own}: {kind}");
        if field.is_optional {
            body.push_str(" | None = None");
        }
        if own != field.name {
            let _ = write!(body, "  # {:?} in the file", field.name);
        }
        body.push('\n');
    }
    if body.is_empty() {
        body.push_str("    pass\n");
    }
    format!("{inner}@dataclass\nclass {name}:\n{body}")
}

fn type_of(field: &str, kind: &InferredType, parent: &str, inner: &mut String) -> String {
    match kind {
        InferredType::Null | InferredType::Mixed => "object".into(),
        InferredType::Bool => "bool".into(),
        InferredType::Integer | InferredType::Unsigned => "int".into(),
        InferredType::Float => "float".into(),
        InferredType::Timestamp => "datetime".into(),
        InferredType::Text => "str".into(),
        InferredType::List(kind) => format!("list[{}]", type_of(field, kind, parent, inner)),
        InferredType::Record(fields) => {
            let name = format!("{parent}{}", type_name(field));
            let _ = writeln!(inner, "{}\n", classes(&name, fields));
            name
        }
    }
}
