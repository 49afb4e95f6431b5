//! Encoded commands.

use std::iter;

use crate::redis::argument::{Argument, append_bytes, append_head};
use crate::sink_worker::QueuedRecords;

/// Encoded commands, each with the position of its record.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    bytes: Vec<u8>,
    /// Record position of each command.
    records: Vec<u64>,
    /// Position of the current record.
    position: u64,
    /// True to check for commands that are not idempotent.
    is_checked: bool,
    /// Name of the first command that is not idempotent, if any.
    unrepeatable: Option<String>,
}

impl PartialEq for Commands {
    /// Compares commands and record positions.
    fn eq(&self, other: &Self) -> bool {
        (&self.bytes, &self.records) == (&other.bytes, &other.records)
    }
}

impl Eq for Commands {}

impl Commands {
    /// Appends any command: its name, such as `"XADD"`, and its arguments.
    ///
    /// ```
    /// # let mut commands = ardea_connectors::redis::Commands::default();
    /// commands.command("EXPIRE", &[&"session:7", &3600]);
    /// ```
    pub fn command(&mut self, name: &str, arguments: &[&dyn Argument]) -> &mut Self {
        append_head(b'*', arguments.len() + 1, &mut self.bytes);
        append_bytes(name.as_bytes(), &mut self.bytes);
        for argument in arguments {
            argument.append_to(&mut self.bytes);
        }
        self.records.push(self.position);
        if self.is_checked && self.unrepeatable.is_none() && !is_repeatable(name) {
            self.unrepeatable = Some(name.to_string());
        }
        self
    }

    /// Sets `key` to `value`. The command is idempotent.
    pub fn set(&mut self, key: impl Argument, value: impl Argument) -> &mut Self {
        self.command("SET", &[&key, &value])
    }

    /// Sets the field `field` of the hash `key` to `value`. The command is idempotent.
    pub fn hset(
        &mut self,
        key: impl Argument,
        field: impl Argument,
        value: impl Argument,
    ) -> &mut Self {
        self.command("HSET", &[&key, &field, &value])
    }

    /// Increments the number at `key` by `amount`. The amount may be added twice after a failure,
    /// unless the sink works [exactly once](crate::redis::RedisSink::exactly_once).
    pub fn incr_by(&mut self, key: impl Argument, amount: i64) -> &mut Self {
        self.command("INCRBY", &[&key, &amount])
    }

    /// Increments the number in the field `field` of the hash `key` by `amount`. The amount may be
    /// added twice after a failure, unless the sink works [exactly
    /// once](crate::redis::RedisSink::exactly_once).
    pub fn hincr_by(&mut self, key: impl Argument, field: impl Argument, amount: i64) -> &mut Self {
        self.command("HINCRBY", &[&key, &field, &amount])
    }

    /// Sets the score of the member `member` of the sorted set `key`. The command is idempotent.
    pub fn zadd(&mut self, key: impl Argument, score: f64, member: impl Argument) -> &mut Self {
        self.command("ZADD", &[&key, &score, &member])
    }

    /// Deletes `key`. The command is idempotent.
    pub fn del(&mut self, key: impl Argument) -> &mut Self {
        self.command("DEL", &[&key])
    }

    /// Returns the encoded size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if there are no commands.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the encoded commands from index `first` on.
    pub(crate) fn bytes_from(&self, first: usize) -> &[u8] {
        let before: usize = self.each().take(first).map(<[u8]>::len).sum();
        &self.bytes[before..]
    }

    pub(crate) fn records(&self) -> &[u64] {
        &self.records
    }

    /// Sets the record position of the following commands.
    pub(crate) fn begin(&mut self, position: u64) {
        self.position = position;
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    /// Enables the check for commands that are not idempotent.
    pub(crate) fn check(&mut self) {
        self.is_checked = true;
    }

    /// Returns the name of the first command that is not idempotent; `None` if there is none or the
    /// check is disabled.
    pub(crate) fn unrepeatable(&self) -> Option<&str> {
        self.unrepeatable.as_deref()
    }

    /// Returns the bytes of each command.
    pub(crate) fn each(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        iter::from_fn(move || {
            let length = length_of_first(rest)?;
            rest.split_off(..length)
        })
    }

    /// Serializes commands and record positions for a snapshot.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.records.len() as u64).to_le_bytes());
        let positions = self.records.iter();
        out.extend(positions.flat_map(|position| position.to_le_bytes()));
        out.extend_from_slice(&self.bytes);
    }

    /// Deserializes commands from a snapshot; `None` if the bytes are invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Commands> {
        let (count, rest) = bytes.split_first_chunk()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let (positions, bytes) = rest.split_at_checked(count.checked_mul(8)?)?;
        let (positions, _) = positions.as_chunks();
        let commands = Commands {
            bytes: bytes.to_vec(),
            records: positions.iter().map(|p| u64::from_le_bytes(*p)).collect(),
            ..Commands::default()
        };
        let lengths = commands.each().map(<[u8]>::len);
        let is_whole = lengths.sum::<usize>() == bytes.len() && commands.each().count() == count;
        is_whole.then_some(commands)
    }
}

impl QueuedRecords for Commands {
    /// A size in bytes.
    const LIMIT: usize = 256 << 10;

    fn size(&self) -> usize {
        self.len()
    }

    fn append(&mut self, other: &mut Commands) {
        if self.is_empty() {
            std::mem::swap(self, other);
        } else {
            self.bytes.append(&mut other.bytes);
            self.records.append(&mut other.records);
        }
    }
}

/// Returns the size of the first command in bytes.
fn length_of_first(bytes: &[u8]) -> Option<usize> {
    let (arguments, mut at) = read_head(bytes, 0)?;
    for _ in 0..arguments {
        let (length, start) = read_head(bytes, at)?;
        at = start.checked_add(length)?.checked_add(2)?;
    }
    Some(at)
}

/// Parses a protocol line with a count; returns the count and the position after the line.
fn read_head(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = bytes.get(at + 1..)?;
    let length = line.iter().position(|byte| *byte == b'\r')?;
    let digits = std::str::from_utf8(&line[..length]).ok()?;
    Some((digits.parse().ok()?, at + 1 + length + 2))
}

/// Returns true if a command is known to be idempotent: it sets a state instead of changing it by
/// an amount.
fn is_repeatable(name: &str) -> bool {
    const NAMES: [&str; 23] = [
        "SET",
        "HSET",
        "ZADD",
        "DEL",
        "SADD",
        "SREM",
        "HDEL",
        "ZREM",
        "MSET",
        "HMSET",
        "UNLINK",
        "SETEX",
        "PSETEX",
        "EXPIRE",
        "PEXPIRE",
        "EXPIREAT",
        "PEXPIREAT",
        "PERSIST",
        "SETBIT",
        "SETRANGE",
        "PFADD",
        "GEOADD",
        "LSET",
    ];
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
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
        commands.append(&mut more);
        assert_eq!(
            String::from_utf8_lossy(commands.bytes()),
            "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$6\r\nINCRBY\r\n$1\r\nb\r\n$2\r\n-2\r\n\
             *4\r\n$4\r\nHSET\r\n$1\r\nh\r\n$1\r\nf\r\n$1\r\nv\r\n"
        );
        assert_eq!(commands.records(), [7, 7, 8]);
        assert!(more.is_empty());
    }

    #[test]
    fn commands_that_were_kept_come_back_and_damaged_ones_do_not() {
        let mut commands = Commands::default();
        commands.begin(3);
        commands.set("a\r\n*1", "").incr_by("b", 7);
        commands.begin(4);
        commands.command("PING", &[]);
        assert_eq!(commands.each().count(), 3);
        assert_eq!(commands.bytes_from(0), commands.bytes());
        assert_eq!(commands.bytes_from(2), b"*1\r\n$4\r\nPING\r\n");
        assert_eq!(commands.bytes_from(3), b"");
        let mut bytes = Vec::new();
        commands.encode(&mut bytes);
        let back = Commands::decode(&bytes).unwrap();
        assert_eq!(
            (back.bytes(), back.records()),
            (commands.bytes(), commands.records())
        );
        for length in 0..bytes.len() {
            assert_eq!(Commands::decode(&bytes[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_command_that_may_not_be_repeated_is_found_if_it_is_looked_for() {
        let write = |commands: &mut Commands| {
            commands
                .set("a", 1)
                .command("LPUSH", &[&"l", &1])
                .incr_by("n", 1);
        };
        let mut commands = Commands::default();
        write(&mut commands);
        assert_eq!(commands.unrepeatable(), None);
        commands.check();
        write(&mut commands);
        assert_eq!(commands.unrepeatable(), Some("LPUSH"));
    }
}
