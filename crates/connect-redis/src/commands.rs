//! Commands that wait to be sent.

use crate::argument::{Argument, append_bytes, append_head};

/// Commands, encoded one behind the other, each with the position of the record that it comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commands {
    bytes: Vec<u8>,
    /// Of each command, the position of its record.
    records: Vec<u64>,
    /// Of the record at hand.
    position: u64,
}

impl Commands {
    /// Any command: its name, such as `"XADD"`, and its arguments.
    ///
    /// ```
    /// # let mut commands = ardea_connect_redis::Commands::default();
    /// commands.command("EXPIRE", &[&"session:7", &3600]);
    /// ```
    pub fn command(&mut self, name: &str, arguments: &[&dyn Argument]) -> &mut Self {
        append_head(b'*', arguments.len() + 1, &mut self.bytes);
        append_bytes(name.as_bytes(), &mut self.bytes);
        for argument in arguments {
            argument.append_to(&mut self.bytes);
        }
        self.records.push(self.position);
        self
    }

    /// The value of `key` is `value`.
    pub fn set(&mut self, key: impl Argument, value: impl Argument) -> &mut Self {
        self.command("SET", &[&key, &value])
    }

    /// The field `field` of the hash `key` is `value`.
    pub fn hset(
        &mut self,
        key: impl Argument,
        field: impl Argument,
        value: impl Argument,
    ) -> &mut Self {
        self.command("HSET", &[&key, &field, &value])
    }

    /// The number at `key` grows by `amount`. If a connection breaks it may be added twice.
    pub fn incr_by(&mut self, key: impl Argument, amount: i64) -> &mut Self {
        self.command("INCRBY", &[&key, &amount])
    }

    /// The number in the field `field` of the hash `key` grows by `amount`. If a connection breaks it may be added twice.
    pub fn hincr_by(&mut self, key: impl Argument, field: impl Argument, amount: i64) -> &mut Self {
        self.command("HINCRBY", &[&key, &field, &amount])
    }

    /// The member `member` of the sorted set `key` has this score.
    pub fn zadd(&mut self, key: impl Argument, score: f64, member: impl Argument) -> &mut Self {
        self.command("ZADD", &[&key, &score, &member])
    }

    /// There is no `key`.
    pub fn del(&mut self, key: impl Argument) -> &mut Self {
        self.command("DEL", &[&key])
    }

    /// How many bytes they take.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn records(&self) -> &[u64] {
        &self.records
    }

    /// The commands that follow come from the record at this position.
    pub(crate) fn begin(&mut self, position: u64) {
        self.position = position;
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    /// Takes the commands of `other`.
    pub(crate) fn take_from(&mut self, other: &mut Commands) {
        if self.is_empty() {
            std::mem::swap(self, other);
        } else {
            self.bytes.append(&mut other.bytes);
            self.records.append(&mut other.records);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_encoded_as_the_protocol_wants_them_and_know_their_records() {
        let mut commands = Commands::default();
        commands.begin(7);
        commands.set("a", 1).incr_by("b", -2);
        commands.begin(9);
        let mut more = Commands::default();
        more.begin(8);
        more.hset("h", "f", "v");
        commands.take_from(&mut more);
        assert_eq!(
            String::from_utf8_lossy(commands.bytes()),
            "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$6\r\nINCRBY\r\n$1\r\nb\r\n$2\r\n-2\r\n\
             *4\r\n$4\r\nHSET\r\n$1\r\nh\r\n$1\r\nf\r\n$1\r\nv\r\n"
        );
        assert_eq!(commands.records(), [7, 7, 8]);
        assert!(more.is_empty());
    }
}
