//! Bodies of `multipart/form-data`: the text of each part is a field, and a file is `{ name, type, size }`, with `text` if it is a
//! short text.

use bytes::Bytes;
use futures::FutureExt as _;
use ostler_contract::http::{HeaderMap, header};
use ostler_contract::{JsonObject, Value, json};

use crate::automation::MOST_FIELDS;
use crate::form_fields;

/// The maximum size of a file whose text is in its field, in bytes.
const LONGEST_TEXT: usize = 64 * 1024;
/// The memory that a part uses beside its content: its name, its value, and the head while it is read.
const PART: usize = 1024;

/// Returns what separates the parts of a body of this form.
pub(crate) fn boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    multer::parse_boundary(kind).ok()
}

/// Returns the memory that [`as_object`] uses for a body, in bytes.
pub(crate) fn measured(body: &[u8]) -> usize {
    let parts = body.windows(3).filter(|three| three == b"\n--").take(MOST_FIELDS).count() + 1;
    // The parts, their values, and the object's text, whose characters can be escaped.
    3 * body.len() + parts * PART
}

/// Returns the text of an object with the fields of a body.
///
/// # Errors
/// What the body is, after "The body is".
pub(crate) fn as_object(body: &Bytes, boundary: &str) -> Result<String, String> {
    let all = futures::stream::iter([Ok::<_, std::convert::Infallible>(body.clone())]);
    let mut parts = multer::Multipart::new(all, boundary);
    let fields = async {
        let (mut fields, mut count) = (JsonObject::new(), 0);
        while let Some(part) = parts.next_field().await.map_err(|error| damaged(&error))? {
            count += 1;
            if count > MOST_FIELDS {
                return Err(format!("a form with more than {MOST_FIELDS} fields"));
            }
            let name = part.name().unwrap_or_default().to_owned();
            let file = part.file_name().map(str::to_owned);
            let kind = part.content_type().map(ToString::to_string);
            let content = part.bytes().await.map_err(|error| damaged(&error))?;
            let value = match file {
                Some(file) => of_file(&file, kind, &content),
                None => String::from_utf8_lossy(&content).into_owned().into(),
            };
            form_fields::put(&mut fields, &name, value);
        }
        Ok(Value::Object(fields).to_string())
    };
    // The whole body is there, so nothing waits.
    fields.now_or_never().unwrap_or_else(|| Err("not a whole multipart form".to_owned()))
}

fn of_file(name: &str, kind: Option<String>, content: &[u8]) -> Value {
    let mut file = json!({ "name": name, "type": kind, "size": content.len() });
    if content.len() <= LONGEST_TEXT
        && let Ok(text) = std::str::from_utf8(content)
    {
        file["text"] = text.into();
    }
    file
}

fn damaged(error: &multer::Error) -> String {
    format!("not a multipart form: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Result<Value, String> {
        as_object(&Bytes::from(body.replace('\n', "\r\n")), "X")
            .map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn each_part_is_a_field() {
        let body = "--X\nContent-Disposition: form-data; name=\"subject\"\n\nHello\n\
                    --X\nContent-Disposition: form-data; name=\"to[]\"\n\na@example.org\n\
                    --X\nContent-Disposition: form-data; name=\"note\"; filename=\"a.txt\"\nContent-Type: text/plain\n\nsome text\n\
                    --X--\n";
        let expected = json!({
            "subject": "Hello", "to": ["a@example.org"],
            "note": { "name": "a.txt", "type": "text/plain", "size": 9, "text": "some text" },
        });
        assert_eq!(of(body), Ok(expected));
        let long = format!(
            "--X\nContent-Disposition: form-data; name=\"f\"; filename=\"b\"\n\n{}\n--X--\n",
            "x".repeat(LONGEST_TEXT + 1)
        );
        assert_eq!(of(&long), Ok(json!({ "f": { "name": "b", "type": null, "size": LONGEST_TEXT + 1 } })));
        let binary =
            b"--X\r\nContent-Disposition: form-data; name=\"f\"; filename=\"b\"\r\n\r\n\xff\xfe\r\n--X--\r\n";
        let binary = as_object(&Bytes::from_static(binary), "X").unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&binary).unwrap()["f"],
            json!({ "name": "b", "type": null, "size": 2 })
        );
    }

    #[test]
    fn what_is_no_whole_form_is_refused() {
        for body in ["", "hello", "--X\nContent-Disposition: form-data; name=\"a\"\n\nb", "--Y--\n"] {
            let refused = of(body).unwrap_err();
            assert!(refused.starts_with("not a multipart form"), "{body}: {refused}");
        }
        let many =
            "--X\nContent-Disposition: form-data; name=\"a\"\n\n\n".repeat(MOST_FIELDS + 1) + "--X--\n";
        assert_eq!(of(&many), Err("a form with more than 10000 fields".to_owned()));
    }

    #[test]
    fn a_content_type_names_the_boundary() {
        let of =
            |kind: &str| boundary(&HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]));
        assert_eq!(of("multipart/form-data; boundary=\"a b\""), Some("a b".to_owned()));
        assert_eq!(of("Multipart/Form-Data; boundary=x"), Some("x".to_owned()));
        assert_eq!(
            (of("multipart/form-data"), of("multipart/mixed; boundary=x"), of("application/json")),
            (None, None, None)
        );
    }

    proptest::proptest! {
        /// Any bytes are read or refused, within the memory that was measured.
        #[test]
        fn any_bytes_are_read_or_refused(
            body in proptest::collection::vec(
                proptest::prop_oneof![
                    proptest::strategy::Just(&b"--X\r\n"[..]), proptest::strategy::Just(&b"\r\n--X--\r\n"[..]),
                    proptest::strategy::Just(&b"\r\n"[..]),
                    proptest::strategy::Just(&b"Content-Disposition: form-data; name=\"a[]\"\r\n\r\n"[..]),
                    proptest::strategy::Just(&b"x\xff\0\""[..]),
                ],
                0..20,
            ),
        ) {
            let body = Bytes::from(body.concat());
            if let Ok(object) = as_object(&body, "X") {
                proptest::prop_assert!(serde_json::from_str::<JsonObject>(&object).is_ok());
                proptest::prop_assert!(object.len() <= measured(&body));
            }
        }
    }
}
