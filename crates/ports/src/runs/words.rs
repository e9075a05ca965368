//! The search of runs as an expression of the word index.

use ostler_contract::stores::runs::{Search, SearchWord};

/// A search expression of the index.
pub(super) struct Expression {
    /// The text of the expression.
    pub text: String,
    /// Whether it contains a prefix of many terms.
    pub is_broad: bool,
}

/// Returns the search as an expression of the index. `terms` returns the terms of the index with a prefix, or
/// `None` if there are many.
///
/// The index returns a term's runs one by one, newest first, but collects all runs of a prefix first. Therefore a
/// prefix of few terms is replaced by these terms.
pub(super) fn expression<E>(
    search: &Search,
    mut terms: impl FnMut(&str) -> Result<Option<Vec<String>>, E>,
) -> Result<Expression, E> {
    let (mut parts, mut is_broad) = (Vec::new(), false);
    for SearchWord { text, begins } in &search.words {
        let found = if *begins { terms(text)? } else { None };
        parts.push(match found {
            Some(terms) if !terms.is_empty() => {
                let terms: Vec<String> = terms.iter().map(|term| format!("\"{term}\"")).collect();
                format!("({})", terms.join(" OR "))
            }
            found => {
                is_broad |= *begins && found.is_none();
                format!("\"{text}\"{}", if *begins { " *" } else { "" })
            }
        });
    }
    Ok(Expression { text: parts.join(" AND "), is_broad })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_of_few_terms_is_replaced_by_these() {
        let search = Search::new("Exit dep* x* z*").unwrap();
        let expression = super::expression::<()>(&search, |begin| {
            Ok(match begin {
                "dep" => Some(vec!["depend".to_owned(), "deploy".to_owned()]),
                "z" => Some(Vec::new()),
                _ => None,
            })
        })
        .unwrap();
        assert_eq!(expression.text, r#""exit" AND ("depend" OR "deploy") AND "x" * AND "z" *"#);
        assert!(expression.is_broad, "x begins many terms");
        let few =
            super::expression::<()>(&Search::new("dep*").unwrap(), |_| Ok(Some(vec!["deploy".to_owned()])));
        assert!(few.is_ok_and(|few| !few.is_broad && few.text == "(\"deploy\")"));
    }
}
