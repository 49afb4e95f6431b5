//! Which entries of a map are wanted.

use ardea_core::{Error, ErrorCode, Result};
use serde_json::Value;

/// Which entries of a map are wanted: all, unless said otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// How the key begins: a text as it is, any other key as it is written in JSON.
    prefix: Option<String>,
    /// What a field of the value has.
    field: Option<Field>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Field {
    /// Its name, and those of what it lies in before it.
    path: Vec<String>,
    /// The value, as JSON if it is some, and as a text.
    is: Option<Value>,
    text: String,
}

impl Filter {
    /// Entries whose keys begin so, and in whose values a field has what is said: `FIELD=VALUE`, `OUTER.INNER=VALUE`.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`] if it says no field.
    pub fn new(prefix: Option<String>, field: Option<&str>) -> Result<Self> {
        let field = field.map(Field::read).transpose()?;
        Ok(Filter { prefix, field })
    }

    /// Whether an entry is wanted.
    pub fn takes(&self, key: &Value, value: &Value) -> bool {
        let has_field = |field: &Field| field.is_in(value);
        self.takes_key(key) && self.field.as_ref().is_none_or(has_field)
    }

    /// Whether entries of this key may be.
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
            let what = format!("{text:?} says not which field is to have which value");
            return Err(Error::new(ErrorCode::BadRequest, what)
                .hint("say FIELD=VALUE, such as country=NO or address.city=Oslo"));
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
