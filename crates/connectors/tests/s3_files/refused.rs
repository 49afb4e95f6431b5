//! Tests with credentials that the store refuses.

use ardea_connectors::files;
use ardea_core::{ErrorCode, InstanceContext};

use super::environment::own_server;

#[test]
#[ignore = "run by files_in_a_bucket"]
fn refused_credentials_fail_the_job_permanently_and_are_not_shown() {
    let server = own_server().expect("a server, as in the calling process");
    let path = format!("s3://states/x?endpoint=http://{}", server.address());
    let (_, source, ..) = files::lines(&path).build().into_parts();
    let (_, sink, ..) = files::write_lines::<u64>(&path).build().into_parts();
    for (supplier, code) in [
        (source, ErrorCode::ReadFailed),
        (sink, ErrorCode::WriteFailed),
    ] {
        let context = InstanceContext::detached("refused");
        let mut processor = supplier.supply(context.instance).expect("supplied");
        let error = processor.init(&context).expect_err("refused");
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains("denies access"), "{error}");
        assert!(error.is_permanent(), "{error}");
        assert!(
            !format!("{error:?}").contains("a-wrong-secret"),
            "{error:?}"
        );
    }
}
