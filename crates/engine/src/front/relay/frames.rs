//! The parts of frames that a host changes when it relays them.

use ostler_protocol::Id;

const RESPONSE_HEAD: &str = r#"{"jsonrpc":"2.0","id":"#;
/// The number of a snapshot, which ends it.
const FROM_SEQ: &str = r#","fromSeq":"#;

/// A frame with an id.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WithId<'a> {
    pub id: Id,
    /// Before the id.
    pub head: &'a str,
    /// After the id.
    pub tail: &'a str,
    pub kind: Kind,
}

/// The kind of a frame with an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Result,
    Error,
}

/// Splits a frame of a host around its id; `None` for a notification.
pub(super) fn split_id(frame: &str) -> Option<WithId<'_>> {
    let rest = frame.strip_prefix(RESPONSE_HEAD)?;
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Id>();
    let id = values.next()?.ok()?;
    let end = RESPONSE_HEAD.len() + values.byte_offset();
    let (head, tail) = (RESPONSE_HEAD, frame.get(end..)?);
    let kind = match tail {
        tail if tail.starts_with(r#","method":"#) => Kind::Request,
        tail if tail.starts_with(r#","error":"#) => Kind::Error,
        _ => Kind::Result,
    };
    Some(WithId { id, head, tail, kind })
}

/// Returns the answer to a subscription with another number of its snapshot.
pub(super) fn with_from_seq(frame: &str, seq: u64) -> String {
    let Some(start) = frame.rfind(FROM_SEQ).map(|at| at + FROM_SEQ.len()) else { return frame.to_owned() };
    let rest = frame[start..].trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{}{seq}{rest}", &frame[..start])
}

/// Returns the snapshot in the answer to a subscription, with another number.
pub(super) fn snapshot_in(answer: &WithId<'_>, seq: u64) -> Option<String> {
    let snapshot = answer.tail.strip_prefix(r#","result":{"snapshot":"#)?.strip_suffix("}}")?;
    Some(with_from_seq(snapshot, seq))
}

#[cfg(test)]
mod tests {
    use ostler_protocol::message::encode;

    use super::*;

    #[test]
    fn a_frame_is_split_around_its_id() {
        let ids = [Id::from(17), Id::Text(r#"a","method":1"#.to_owned())];
        for id in ids {
            let frame = encode::raw_result(&id, r#"{"snapshot":{"resource":"a","state":{},"fromSeq":5}}"#);
            let split = split_id(&frame).expect("an id");
            assert_eq!((&split.id, split.kind), (&id, Kind::Result));
            assert_eq!(
                snapshot_in(&split, 12).as_deref(),
                Some(r#"{"resource":"a","state":{},"fromSeq":12}"#)
            );
            assert_eq!(with_from_seq(&frame, 5), frame);
            let request = encode::request(&id, "resourceRead", &ostler_protocol::json!({})).expect("JSON");
            let split = split_id(&request).expect("an id");
            assert_eq!((split.kind, split.id), (Kind::Request, id));
            assert_eq!(split.tail, r#","method":"resourceRead","params":{}}"#);
        }
        assert_eq!(split_id(r#"{"jsonrpc":"2.0","method":"action","params":{}}"#), None);
    }

    #[test]
    fn an_answer_without_a_snapshot_stays() {
        let frame = encode::raw_result(&Id::from(1), "{}");
        assert_eq!(with_from_seq(&frame, 5), frame);
        assert_eq!(snapshot_in(&split_id(&frame).expect("an id"), 1), None);
    }
}
