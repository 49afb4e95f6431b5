//! The schema as Rust structs.

use std::fmt::Write;

use super::names::{field_name, type_name};
use super::{InferredField, InferredType};

const RESERVED: &[&str] = &[
    "as", "async", "await", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self",
    "static", "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized",
    "use", "virtual", "where", "while", "yield",
];

/// Returns the structs, the outermost first.
pub(super) fn structs(name: &str, fields: &[InferredField]) -> String {
    let name = type_name(name);
    let mut body = String::new();
    let mut inner = String::new();
    for field in fields {
        let own = field_name(&field.name, RESERVED);
        if own != field.name {
            let _ = writeln!(body, "    #[serde(rename = {:?})]", field.name);
        }
        let kind = type_of(&field.name, &field.kind, &name, &mut inner);
        let _ = match field.is_optional {
            true => writeln!(body, "    {own}: Option<{kind}>,"),
            false => writeln!(body, "    {own}: {kind},"),
        };
    }
    format!("#[derive(Serialize, Deserialize, Clone, Debug)]\nstruct {name} {{\n{body}}}\n{inner}")
}

fn type_of(field: &str, kind: &InferredType, parent: &str, inner: &mut String) -> String {
    match kind {
        InferredType::Null | InferredType::Mixed => "serde_json::Value".into(),
        InferredType::Bool => "bool".into(),
        InferredType::Integer => "i64".into(),
        InferredType::Unsigned => "u64".into(),
        InferredType::Float => "f64".into(),
        InferredType::Timestamp | InferredType::Text => "String".into(),
        InferredType::List(kind) => format!("Vec<{}>", type_of(field, kind, parent, inner)),
        InferredType::Record(fields) => {
            let name = format!("{parent}{}", type_name(field));
            let _ = write!(inner, "\n{}", structs(&name, fields));
            name
        }
    }
}
