//! `ardea inspect`: the schema of a file as a type in Rust, Python and SQL.

use std::path::Path;

use ardea::command_line::Context;
use ardea::connect::inference::{
    InferredField, InferredFormat, InferredSchema, InferredType, infer_file,
};
use ardea::console::Failure;
use serde_json::{Value, json};

use crate::args::{InspectArgs, InspectFormat};
use crate::stdout;

/// Infers the schema of the file's first records, and prints it.
pub fn run(args: &InspectArgs, context: &Context) -> Result<(), Failure> {
    let format = match args.format {
        Some(InspectFormat::Json) => InferredFormat::JsonLines,
        Some(InspectFormat::Csv) => InferredFormat::Csv(b','),
        Some(InspectFormat::Tsv) => InferredFormat::Csv(b'\t'),
        None => InferredFormat::of_name(&args.file).ok_or_else(|| {
            Failure::usage(
                format!(
                    "the name of {} does not tell its format",
                    args.file.display()
                ),
                "give it: --format json, csv or tsv",
            )
        })?,
    };
    let schema = infer_file(&args.file, format, args.records as usize)?;
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.file));
    match context.json {
        true => stdout::print_json(&described(&schema, &name)),
        false => stdout::print(&report(&schema, &name)),
    }
}

/// Returns the name of a file without its extensions.
fn name_of(file: &Path) -> String {
    let name = file.file_name().map(|name| name.to_string_lossy());
    let name = name.as_deref().unwrap_or_default();
    let stem = name.split('.').find(|part| !part.is_empty());
    stem.unwrap_or("record").to_string()
}

fn report(schema: &InferredSchema, name: &str) -> String {
    let bad = match schema.bad_records() {
        0 => String::new(),
        bad => format!("; {bad} malformed ones were left out"),
    };
    format!(
        "inferred from {} records{bad}\n\n-- Rust\n{}\n-- Python\n{}\n-- SQL\n{}",
        schema.records(),
        schema.to_rust(name),
        schema.to_python(name),
        schema.to_sql(name),
    )
}

fn described(schema: &InferredSchema, name: &str) -> Value {
    json!({
        "records": schema.records(),
        "bad_records": schema.bad_records(),
        "fields": schema.fields().iter().map(field).collect::<Vec<_>>(),
        "rust": schema.to_rust(name),
        "python": schema.to_python(name),
        "sql": schema.to_sql(name),
    })
}

fn field(field: &InferredField) -> Value {
    json!({ "name": field.name, "type": kind(&field.kind), "optional": field.is_optional })
}

fn kind(of: &InferredType) -> Value {
    match of {
        InferredType::Null => json!("null"),
        InferredType::Bool => json!("bool"),
        InferredType::Integer => json!("integer"),
        InferredType::Unsigned => json!("unsigned"),
        InferredType::Float => json!("float"),
        InferredType::Timestamp => json!("timestamp"),
        InferredType::Text => json!("text"),
        InferredType::Mixed => json!("mixed"),
        InferredType::List(items) => json!({ "list": kind(items) }),
        InferredType::Record(fields) => {
            json!({ "record": fields.iter().map(field).collect::<Vec<_>>() })
        }
    }
}
