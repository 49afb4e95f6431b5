//! Filter for map entries.

use ardea_core::{Error, ErrorCode, Result};
use serde_json::Value;

/// A filter for map entries. The default accepts all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Prefix of the key. A key that is not a string is compared as JSON text.
    prefix: Option<String>,
    /// Required value of a field.
    field: Option<Field>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Field {
    /// Names of the field and its enclosing objects, outermost first.
    path: Vec<String>,
    /// The required value: as JSON, if it is valid JSON, and as text.
    is: Option<Value>,
    text: String,
}

impl Filter {
    /// Creates a filter by key prefix and by a field's value: `FIELD=VALUE`, `OUTER.INNER=VALUE`.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`] if `field` has no field name or no `=`.
    pub fn new(prefix: Option<String>, field: Option<&str>) -> Result<Self> {
        let field = field.map(Field::read).transpose()?;
        Ok(Filter { prefix, field })
    }

    /// Returns true if the filter accepts the entry.
    pub fn takes(&self, key: &Value, value: &Value) -> bool {
        let has_field = |field: &Field| field.is_in(value);
        self.takes_key(key) && self.field.as_ref().is_none_or(has_field)
    }

    /// Returns true if the filter accepts the key.
    pub fn takes_key(&self, key: &Value) -> bool {
        let Some(prefix) = &self.prefix else {
            return true;
        };
        match key {
            Value::String(text) => text.starts_with(prefix.as_str()),
            other => other.to_string().starts_with(prefix.as_str()),
        }
    }
}

impl Field {
    fn read(text: &str) -> Result<Self> {
        let Some((path, value)) = text.split_once('=').filter(|(path, _)| !path.is_empty()) else {
            let what = format!("{text:?} is not a filter of the form FIELD=VALUE");
            return Err(Error::new(ErrorCode::BadRequest, what)
                .hint("for example country=NO or address.city=Oslo"));
        };
        Ok(Field {
            path: path.split('.').map(str::to_string).collect(),
            is: serde_json::from_str(value).ok(),
            text: value.to_string(),
        })
    }

    fn is_in(&self, value: &Value) -> bool {
        let mut at = value;
        for name in &self.path {
            let inner = match at {
                Value::Array(all) => name.parse().ok().and_then(|place: usize| all.get(place)),
                other => other.get(name),
            };
            match inner {
                Some(inner) => at = inner,
                None => return false,
            }
        }
        match at {
            Value::String(text) => *text == self.text || self.is.as_ref() == Some(at),
            other => self.is.as_ref() == Some(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_is_told_by_how_its_key_begins_and_by_what_a_field_has() {
        let ship = json!({ "flag": "NO", "tons": 7, "port": { "name": "7" }, "crew": ["ann"] });
        let takes = |prefix: Option<&str>, field: Option<&str>, key: Value| {
            let filter = Filter::new(prefix.map(str::to_string), field).unwrap();
            filter.takes(&key, &ship)
        };
        assert!(takes(None, None, json!("seagull")));
        assert!(takes(Some("sea"), None, json!("seagull")));
        assert!(!takes(Some("gull"), None, json!("seagull")));
        assert!(takes(Some("12"), None, json!(123)));
        assert!(takes(Some("[\"a\""), None, json!(["a", 1])));
        for (field, is_in) in [
            ("flag=NO", true),
            ("flag=\"NO\"", true),
            ("flag=N", false),
            ("tons=7", true),
            ("tons=7.5", false),
            ("port.name=7", true),
            ("port=7", false),
            ("crew.0=ann", true),
            ("crew.1=ann", false),
            ("none=NO", false),
        ] {
            assert_eq!(takes(Some("s"), Some(field), json!("s")), is_in, "{field}");
        }
        for field in ["flag", "=NO", ""] {
            let error = Filter::new(None, Some(field)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadRequest);
        }
    }
}
