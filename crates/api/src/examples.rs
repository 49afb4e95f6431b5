//! Values for tests.

use ardea_control::{JobDefinition, JobRef, ProgramRef};

pub(crate) fn definition() -> JobDefinition {
    JobDefinition {
        job: JobRef {
            cluster: "prod".into(),
            name: "word-count".into(),
            submission: 7,
        },
        program: ProgramRef {
            package: "ab".repeat(32),
            executable: "wordcount".into(),
            arguments: vec!["--words".into(), "100".into()],
        },
        packing: "round-robin".into(),
        scheduler: "local".into(),
        settings: [("slice".to_string(), "50us".to_string())].into(),
        version: "0.1.0".into(),
    }
}
