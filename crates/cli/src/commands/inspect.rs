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
    let schema = match format_of(args)? {
        FileFormat::Text(format) => infer_file(&args.file, format, args.records as usize)?,
        FileFormat::Parquet => parquet_schema(&args.file)?,
    };
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.file));
    match context.json {
        true => stdout::print_json(&described(&schema, &name)),
        false => stdout::print(&report(&schema, &name)),
    }
}

/// The format of a file.
enum FileFormat {
    /// Records of text, whose types are inferred.
    Text(InferredFormat),
    Parquet,
}

/// Returns the given format, or that of the file's name.
fn format_of(args: &InspectArgs) -> Result<FileFormat, Failure> {
    let format = match args.format {
        Some(InspectFormat::Json) => InferredFormat::JsonLines,
        Some(InspectFormat::Csv) => InferredFormat::Csv(b','),
        Some(InspectFormat::Tsv) => InferredFormat::Csv(b'\t'),
        Some(InspectFormat::Parquet) => return Ok(FileFormat::Parquet),
        None => {
            let extension = args.file.extension();
            if extension.is_some_and(|it| it.eq_ignore_ascii_case("parquet")) {
                return Ok(FileFormat::Parquet);
            }
            InferredFormat::of_name(&args.file).ok_or_else(|| {
                let file = args.file.display();
                let what = format!("the name of {file} does not tell its format");
                Failure::usage(what, "give it: --format json, csv, tsv or parquet")
            })?
        }
    };
    Ok(FileFormat::Text(format))
}

#[cfg(feature = "parquet")]
fn parquet_schema(file: &Path) -> Result<InferredSchema, Failure> {
    Ok(ardea::columns::infer_parquet(file)?)
}

#[cfg(not(feature = "parquet"))]
fn parquet_schema(file: &Path) -> Result<InferredSchema, Failure> {
    let what = format!(
        "{} is Parquet, which this program cannot read",
        file.display()
    );
    Err(Failure::usage(what, "build it with --features parquet"))
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
