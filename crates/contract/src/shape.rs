//! What a value that crosses the boundary looks like, as data: from it come the conversion of a JavaScript
//! value, the sentence when one does not fit, and the TypeScript declaration.

/// What a value looks like.
#[derive(Debug, Clone)]
pub enum Shape {
    /// No value.
    Nothing,
    /// `true` or `false`
    Boolean,
    /// A whole number.
    Integer,
    /// A whole number in a range, ends included.
    IntegerBetween {
        /// The least.
        low: i64,
        /// The greatest.
        high: i64,
    },
    /// Any number.
    Number,
    /// Text; `""` too unless said.
    Text {
        /// Refuses `""`.
        non_empty: bool,
    },
    /// A `Uint8Array`.
    Bytes,
    /// Any JSON value.
    Any,
    /// A JSON object with any keys.
    Fields,
    /// A protocol type, by its name in the wire types.
    Wire(&'static str),
    /// One of a few words.
    Names {
        /// The type's name.
        name: &'static str,
        /// Its docs.
        docs: &'static str,
        /// The words.
        names: &'static [&'static str],
    },
    /// An object with known members.
    Object(fn() -> &'static ObjectShape),
    /// One of several objects, told apart by a tag.
    Union(fn() -> &'static UnionShape),
    /// Something to call.
    Function(fn() -> &'static FunctionShape),
    /// May be left out.
    Optional(Box<Shape>),
    /// A list.
    List(Box<Shape>),
    /// An object whose values are alike.
    Map(Box<Shape>),
    /// The receiver may not write to it.
    Frozen(Box<Shape>),
    /// A fetch `Request`.
    Request,
    /// A fetch `Response`.
    Response,
}

/// An object with known members.
#[derive(Debug)]
pub struct ObjectShape {
    /// The type's name.
    pub name: &'static str,
    /// Its docs.
    pub docs: &'static str,
    /// Whether no member is live, so that it crosses as JSON.
    pub data: bool,
    /// Its members, in order.
    pub fields: Vec<FieldShape>,
}

/// One member.
#[derive(Debug)]
pub struct FieldShape {
    /// camelCase.
    pub name: &'static str,
    /// Its docs.
    pub docs: &'static str,
    /// What it looks like.
    pub shape: Shape,
    /// The parameters' names, where it is a function.
    pub params: &'static [&'static str],
    /// Whether a default stands in for it.
    pub may_be_left_out: bool,
    /// Whether its members stand beside the others.
    pub flatten: bool,
}

impl FieldShape {
    /// Whether the member may be left out.
    pub fn optional(&self) -> bool {
        self.may_be_left_out || matches!(self.shape, Shape::Optional(_) | Shape::Nothing)
    }
}

/// Objects told apart by a tag.
#[derive(Debug)]
pub struct UnionShape {
    /// The type's name.
    pub name: &'static str,
    /// Its docs.
    pub docs: &'static str,
    /// The member that tells them apart.
    pub tag: &'static str,
    /// The objects.
    pub variants: Vec<VariantShape>,
}

/// One object of a union.
#[derive(Debug)]
pub struct VariantShape {
    /// The tag's word.
    pub tag: &'static str,
    /// Its docs.
    pub docs: &'static str,
    /// Its members beside the tag.
    pub fields: Vec<FieldShape>,
}

/// Something to call.
#[derive(Debug)]
pub struct FunctionShape {
    /// What it takes.
    pub params: Vec<Shape>,
    /// What it answers.
    pub returns: Shape,
    /// Whether it answers at once; otherwise its answer is a promise.
    pub now: bool,
}

impl Shape {
    /// The words after *needs to be*.
    pub fn expected(&self) -> String {
        match self {
            Self::Nothing => "left out".to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::Integer => "an integer".to_owned(),
            Self::IntegerBetween { low, high } => format!("an integer between {low} and {high}"),
            Self::Number => "a number".to_owned(),
            Self::Text { non_empty: false } => "a string".to_owned(),
            Self::Text { non_empty: true } => "a non-empty string".to_owned(),
            Self::Bytes => "a Uint8Array".to_owned(),
            Self::Any => "a value".to_owned(),
            Self::Fields | Self::Object(_) | Self::Map(_) => "an object".to_owned(),
            Self::Wire(name) => format!("a {name} of the protocol"),
            Self::Names { names, .. } => format!("one of {}", names.join(", ")),
            Self::Union(union) => {
                let tags: Vec<_> = union().variants.iter().map(|variant| variant.tag).collect();
                format!("an object whose {} is one of {}", union().tag, tags.join(", "))
            }
            Self::Function(_) => "a function".to_owned(),
            Self::Optional(inner) | Self::Frozen(inner) => inner.expected(),
            Self::List(_) => "a list".to_owned(),
            Self::Request => "a Request".to_owned(),
            Self::Response => "a Response".to_owned(),
        }
    }

    /// The shape behind *may be left out* and *may not be written to*.
    pub fn core(&self) -> &Shape {
        match self {
            Self::Optional(inner) | Self::Frozen(inner) => inner.core(),
            other => other,
        }
    }
}
