//! The shapes of values that cross the boundary, as data. The conversion of JavaScript values, the messages about
//! values that do not fit, and the TypeScript declarations are derived from them.

/// The shape of a value.
#[derive(Debug, Clone)]
pub enum Shape {
    /// No value.
    Nothing,
    /// `true` or `false`
    Boolean,
    /// A whole number.
    Integer,
    /// A whole number in an inclusive range.
    IntegerBetween {
        /// The minimum.
        low: i64,
        /// The maximum.
        high: i64,
    },
    /// Any number.
    Number,
    /// A text, by default also the empty one.
    Text {
        /// Rejects the empty text.
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
    /// One of several words.
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
    /// One of several objects, distinguished by a tag.
    Union(fn() -> &'static UnionShape),
    /// A function.
    Function(fn() -> &'static FunctionShape),
    /// An optional value.
    Optional(Box<Shape>),
    /// A list.
    List(Box<Shape>),
    /// An object whose values have the same shape.
    Map(Box<Shape>),
    /// A value that the receiver cannot change.
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
    /// Whether no member is live, so that the object crosses as JSON.
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
    /// Its shape.
    pub shape: Shape,
    /// The names of the parameters, if it is a function.
    pub params: &'static [&'static str],
    /// Whether it has a default.
    pub may_be_left_out: bool,
    /// Whether its members are flattened into the object.
    pub flatten: bool,
}

impl FieldShape {
    /// Returns whether the member is optional.
    pub fn optional(&self) -> bool {
        self.may_be_left_out || matches!(self.shape, Shape::Optional(_) | Shape::Nothing)
    }
}

/// Objects distinguished by a tag.
#[derive(Debug)]
pub struct UnionShape {
    /// The type's name.
    pub name: &'static str,
    /// Its docs.
    pub docs: &'static str,
    /// The member with the tag.
    pub tag: &'static str,
    /// The objects.
    pub variants: Vec<VariantShape>,
}

/// One object of a union.
#[derive(Debug)]
pub struct VariantShape {
    /// The value of the tag.
    pub tag: &'static str,
    /// Its docs.
    pub docs: &'static str,
    /// Its members in addition to the tag.
    pub fields: Vec<FieldShape>,
}

/// A function.
#[derive(Debug)]
pub struct FunctionShape {
    /// Its parameters.
    pub params: Vec<Shape>,
    /// Its result.
    pub returns: Shape,
    /// Whether it is synchronous; otherwise its result is a promise.
    pub now: bool,
}

impl Shape {
    /// Returns the text after *needs to be*.
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

    /// Returns the shape inside the wrappers for optional and immutable values.
    pub fn core(&self) -> &Shape {
        match self {
            Self::Optional(inner) | Self::Frozen(inner) => inner.core(),
            other => other,
        }
    }
}
