//! Response bodies that end when the token of their request is revoked or expires.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body as ResponseBody, Bytes};
use hyper::body::{Body, Frame, SizeHint};

use crate::access::now_ms;
use crate::{TokenCheck, TokenRegistry};

/// Minimum time between two checks of a token.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The body of a response to the holder of a named token. A stream of events thus ends with the
/// next event after its token is no longer valid.
pub(super) struct TokenBody {
    body: ResponseBody,
    secret: Box<str>,
    tokens: Arc<TokenRegistry>,
    next_check: Instant,
}

impl TokenBody {
    /// Creates the body for a request whose token was valid a moment ago.
    pub(super) fn new(body: ResponseBody, secret: &str, tokens: Arc<TokenRegistry>) -> Self {
        TokenBody {
            body,
            secret: secret.into(),
            tokens,
            next_check: Instant::now() + CHECK_INTERVAL,
        }
    }

    /// Checks the token if a check is due. Returns false if the token is no longer valid.
    fn is_valid(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next_check {
            return true;
        }
        self.next_check = now + CHECK_INTERVAL;
        matches!(
            self.tokens.check(&self.secret, now_ms()),
            TokenCheck::Valid(_)
        )
    }
}

impl Body for TokenBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match frame {
            Poll::Ready(Some(_)) if !self.is_valid() => {
                self.body = ResponseBody::empty();
                Poll::Ready(None)
            }
            frame => frame,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::{AccessRole, TokenRequest, create_token};

    #[tokio::test]
    async fn a_stream_ends_when_its_token_is_revoked() {
        let request = TokenRequest {
            name: "ci".into(),
            role: AccessRole::Viewer,
            may_upload: false,
            expires_in_s: None,
        };
        let (stored, new) = create_token(request, now_ms()).unwrap();
        let tokens = Arc::new(TokenRegistry::default());
        tokens.replace([stored]);
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let lines = super::super::lines::JsonLinesBody::events(receiver, |it: u32| it, |_| 0);
        let body = ResponseBody::new(lines);
        let mut body = TokenBody::new(body, &new.secret, Arc::clone(&tokens));
        body.next_check = Instant::now();
        sender.send(Ok(1)).await.unwrap();
        assert!(body.frame().await.is_some());
        tokens.replace([]);
        body.next_check = Instant::now();
        sender.send(Ok(2)).await.unwrap();
        assert!(body.frame().await.is_none());
        assert!(sender.is_closed(), "the producer of the events stops");
    }
}
