//! Columns of the types that the first records of a file show.

use ardea_connectors::inference::{InferredField, InferredType};
use ardea_core::{Error, ErrorCode, Result};
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::decode::FieldPath;

/// The fields of records that can be columns, with their paths.
pub(super) struct InferredColumns(Vec<(FieldPath, DataType)>);

impl InferredColumns {
    /// Returns the columns of inferred fields. A field of an object has the path to it. A field
    /// without a value, with a list, or with values of several types is left out.
    pub(super) fn of(fields: &[InferredField]) -> Self {
        let mut columns = InferredColumns(Vec::new());
        columns.add(&mut Vec::new(), fields);
        columns
    }

    fn add<'a>(&mut self, path: &mut Vec<&'a str>, fields: &'a [InferredField]) {
        for field in fields {
            path.push(&field.name);
            match &field.kind {
                InferredType::Record(inner) => self.add(path, inner),
                kind => {
                    let column = column_type(kind).map(|it| (FieldPath::keys(path.clone()), it));
                    self.0.extend(column);
                }
            }
            path.pop();
        }
    }

    /// Returns the schema and the paths of all columns. Each is named by its path.
    pub(super) fn all(self) -> (Schema, Vec<FieldPath>) {
        let fields = self.0.iter();
        let fields = fields.map(|(path, kind)| Field::new(path.joined(), kind.clone(), true));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        (schema, self.0.into_iter().map(|(path, _)| path).collect())
    }

    /// Returns the schema and the paths of the columns with these names: paths with dots between
    /// the keys.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] with the known columns if there is no such column.
    pub(super) fn named(&self, names: &[String]) -> Result<(Schema, Vec<FieldPath>)> {
        let (mut fields, mut paths) = (Vec::new(), Vec::new());
        for name in names {
            let found = self.0.iter().find(|(path, _)| path.joined() == *name);
            let Some((path, kind)) = found else {
                let known: Vec<_> = self.0.iter().map(|(path, _)| path.joined()).collect();
                let what = format!("the first records have no field {name:?} of one type");
                return Err(Error::new(ErrorCode::InvalidJob, what).hint(format!(
                    "the fields are {}; give the types with schema(…)",
                    known.join(", ")
                )));
            };
            fields.push(Field::new(name, kind.clone(), true));
            paths.push(path.clone());
        }
        Ok((Schema::new(fields), paths))
    }
}

/// Returns the type of the column of a field; `None` if it has none.
fn column_type(kind: &InferredType) -> Option<DataType> {
    Some(match kind {
        InferredType::Bool => DataType::Boolean,
        InferredType::Integer => DataType::Int64,
        InferredType::Unsigned => DataType::UInt64,
        InferredType::Float => DataType::Float64,
        InferredType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        InferredType::Text => DataType::Utf8,
        InferredType::Null
        | InferredType::List(_)
        | InferredType::Record(_)
        | InferredType::Mixed => return None,
    })
}

#[cfg(test)]
mod tests {
    use ardea_connectors::inference::InferredSchema;

    use super::*;

    fn inferred(lines: &[&str]) -> InferredColumns {
        let schema = InferredSchema::of_json(lines.iter().map(|line| line.as_bytes()));
        InferredColumns::of(schema.fields())
    }

    #[test]
    fn fields_of_one_type_are_columns_also_those_of_objects() {
        let columns = inferred(&[
            r#"{"a":1,"b":null,"c":"x","d":{"e":true,"f":[1]},"g":1,"t":"2015-07-15T00:00:00Z"}"#,
            r#"{"a":18446744073709551615,"b":2.5,"d":{"i":"y"},"g":"z"}"#,
            r#"{"h":18446744073709551615,"n":null}"#,
        ]);
        let (schema, paths) = columns.all();
        let fields = schema.fields().iter();
        let types: Vec<_> = fields
            .map(|field| format!("{}: {}", field.name(), field.data_type()))
            .collect();
        let expected = [
            "a: Float64",
            "b: Float64",
            "c: Utf8",
            "d.e: Boolean",
            "d.i: Utf8",
            "t: Timestamp(µs)",
            "h: UInt64",
        ];
        assert_eq!(types, expected);
        assert_eq!(paths[3], FieldPath::keys(["d", "e"]));
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_known_ones() {
        let columns = inferred(&[r#"{"id":1,"by":{"name":"ann"},"a.b":1}"#]);
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(|it| it.to_string()).collect() };
        let error = columns.named(&names(&["id", "by.nam"])).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("by.nam\"") && error.contains("id, by.name"),
            "{error}"
        );
        let (_, paths) = columns.named(&names(&["by.name", "a.b"])).unwrap();
        assert_eq!(
            paths,
            [FieldPath::from("by.name"), FieldPath::keys(["a.b"])]
        );
    }
}
