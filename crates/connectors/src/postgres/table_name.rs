//! Names of tables, and their quoting in SQL.

use std::fmt;

/// The name of a table or view. Names are case-sensitive, and reserved words need no quotes.
///
/// A text with one dot is a schema and a table: `"shop.orders"`. A part that contains dots is
/// written in double quotes as in SQL: `"shop.\"orders.2026\""`. Without a schema the table is
/// found with the server's `search_path`.
///
/// ```
/// use ardea_connectors::postgres::TableName;
///
/// assert_eq!(TableName::from("shop.Order"), TableName::new("Order").in_schema("shop"));
/// assert_eq!(TableName::from("\"a.b\""), TableName::new("a.b"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableName {
    schema: Option<String>,
    table: String,
}

impl TableName {
    /// Creates the name of a table without schema, which the server finds with its `search_path`.
    /// Dots and quotes are part of the name.
    pub fn new(table: impl Into<String>) -> Self {
        TableName {
            schema: None,
            table: table.into(),
        }
    }

    /// Sets the schema. Dots and quotes are part of the schema's name.
    pub fn in_schema(self, schema: impl Into<String>) -> Self {
        TableName {
            schema: Some(schema.into()),
            ..self
        }
    }

    /// Returns the name without its schema.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// Returns the quoted name for a statement.
    pub(crate) fn quoted(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(&self.table)),
            None => quoted(&self.table),
        }
    }
}

impl From<&str> for TableName {
    fn from(text: &str) -> Self {
        match split(text).as_deref() {
            Some([table]) => TableName::new(table),
            Some([schema, table]) => TableName::new(table).in_schema(schema),
            _ => TableName::new(text),
        }
    }
}

impl From<String> for TableName {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for TableName {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |part: &str| match part.contains(['.', '"']) || part.is_empty() {
            true => quoted(part),
            false => part.to_string(),
        };
        if let Some(schema) = &self.schema {
            write!(f, "{}.", plain(schema))?;
        }
        f.write_str(&plain(&self.table))
    }
}

/// Quotes a name for SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Splits a text at unquoted dots, and removes the quotes. `None` if quotes or parts are
/// incomplete.
fn split(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let mut part = String::new();
        if let Some(inner) = rest.strip_prefix('"') {
            rest = inner;
            loop {
                let (before, behind) = rest.split_once('"')?;
                part.push_str(before);
                rest = behind;
                match rest.strip_prefix('"') {
                    Some(behind) => {
                        part.push('"');
                        rest = behind;
                    }
                    None => break,
                }
            }
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            part.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        if part.is_empty() || part.contains('\0') {
            return None;
        }
        parts.push(part);
        match rest.strip_prefix('.') {
            Some(behind) => rest = behind,
            None if rest.is_empty() => return Some(parts),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted_as_it_is() {
        for (given, quoted) in [
            ("user", r#""user""#),
            ("Order", r#""Order""#),
            ("shop.order", r#""shop"."order""#),
            (r#""a.b""#, r#""a.b""#),
            (r#"s."a""b""#, r#""s"."a""b""#),
            (r#"a"; drop table b"#, r#""a""; drop table b""#),
            (r#"a"b"#, r#""a""b""#),
            (r#""a"#, r#""""a""#),
            ("a.b.c", r#""a.b.c""#),
            ("a.", r#""a.""#),
            ("two words", r#""two words""#),
        ] {
            assert_eq!(TableName::from(given).quoted(), quoted, "{given}");
        }
    }

    #[test]
    fn a_name_is_shown_so_that_it_can_be_given_again() {
        for given in ["user", "shop.Order", r#""a.b""#, r#"s."a.""b""#] {
            let name = TableName::from(given);
            assert_eq!(name.to_string(), given);
            assert_eq!(TableName::from(name.to_string()), name);
        }
    }
}
