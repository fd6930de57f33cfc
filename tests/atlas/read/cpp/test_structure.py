"""What C++ declares: kinds, names and scopes."""

from __future__ import annotations

from tests.atlas.read.cpp.reading import read, symbols


def test_namespaces() -> None:
    text = """\
        namespace a::b {
        namespace { int hidden; }
        inline namespace v1 { void f(); }
        }  // namespace a::b
        namespace c = a::b;
        extern "C" { int g(void); }
        extern "C" void h() {}
        using namespace a;
        """
    assert symbols(text) == [
        *("1 namespace a::b", "2 variable a::b::hidden", "3 namespace a::b::v1", "3 function a::b::v1::f?"),
        *("5 alias c", "6 function g?", "7 function h"),
    ]


def test_classes_and_their_members() -> None:
    text = """\
        template <class T>
        class A final : public B<T> {
         public:
          explicit A(int x) : x_(x), y_{x} {}
          A(const A&) = delete;
          virtual ~A();
          static A make();
          virtual int area() const noexcept = 0;
          auto trailing() -> std::vector<int>;
          [[nodiscard]] bool flag() const;
          std::function<void(int)> callback_;
          void (*pointer_)(int);
          R (Owner::*member_)(int);
          int x_, y_ : 3, z_[2] = {1, 2};
          static constexpr int kSize = 3;
          static int count;
          using Base = B<T>;
          using Base::Base;
          typedef int Integer;
          enum class Color : int { Red, Green = 2 };
          enum { kFirst };
          struct Inner { int deep; };
          union { int a; float b; };
          class Later;
          friend class Other;
          friend bool operator==(const A& left, const A& right) { return true; }
          friend void swap(A&, A&);
        };
        """
    assert symbols(text) == [
        *("2 class A", "4 method A::A", "5 method A::A", "6 method A::~A?", "7 method A::make?", "8 method A::area?"),
        *("9 method A::trailing?", "10 method A::flag?", "11 field A::callback_", "12 field A::pointer_"),
        *("13 field A::member_", "14 field A::x_", "14 field A::y_", "14 field A::z_", "15 variable A::kSize"),
        *("16 variable A::count", "17 alias A::Base", "18 using A::Base", "19 alias A::Integer", "20 enum A::Color"),
        *("20 enumerator A::Color::Red", "20 enumerator A::Color::Green", "21 enumerator A::kFirst"),
        *("22 struct A::Inner", "22 field A::Inner::deep", "23 field A::a", "23 field A::b", "24 class A::Later?"),
        *("26 function operator==", "27 function swap?"),
    ]


def test_operators() -> None:
    text = """\
        struct A {
          int operator()(int x) const;
          int operator () (float x);
          bool operator==(const A&) const = default;
          A& operator=(A&&);
          A* operator->();
          int& operator[](int);
          explicit operator bool() const;
          operator const char*() const { return 0; }
          template <class T> operator std::vector<T>() const;
          void* operator new(size_t);
          A operator,(A);
        };
        A::operator bool() const { return true; }
        inline A::operator float() const { return 1; }
        std::ostream& operator<<(std::ostream& out, const A& a);
        int operator"" _kb(unsigned long long);
        """
    assert [line.split(" ", 2)[2] for line in symbols(text)] == [
        *("A", "A::operator()?", "A::operator()?", "A::operator==", "A::operator=?", "A::operator->?"),
        *("A::operator[]?", "A::operator bool?", "A::operator const char*", "A::operator std::vector<T>?"),
        *("A::operator new?", "A::operator,?", "A::operator bool", "A::operator float", "operator<<?"),
        'operator""_kb?',
    ]


def test_definitions_outside_of_their_class() -> None:
    text = """\
        namespace n {
        struct Known { void f(); static int x; struct Inner; };
        void Known::f() {}
        int Known::x = 3;
        struct Known::Inner { int a; };
        Unknown::Unknown(int a) : a_(a) {}
        Unknown::~Unknown() = default;
        template <class T> void Generic<T>::g() {}
        }
        void n::free_function() {}
        at::Tensor at::native::add() { return {}; }
        template <> struct std::hash<Known> {};
        """
    assert symbols(text) == [
        *("1 namespace n", "2 struct n::Known", "2 method n::Known::f?", "2 variable n::Known::x"),
        *("2 struct n::Known::Inner?", "3 method n::Known::f", "4 variable n::Known::x", "5 struct n::Known::Inner"),
        *("5 field n::Known::Inner::a", "6 method n::Unknown::Unknown", "7 method n::Unknown::~Unknown"),
        *("8 method n::Generic::g", "10 function n::free_function", "11 function at::native::add"),
        "12 struct std::hash",
    ]


def test_templates_have_their_plain_name() -> None:
    text = """\
        template <typename T, int N = 3, template <class> class C, class... Ts> struct A;
        template <> struct A<int> {};
        template <typename T> constexpr bool is_a = false;
        template <> void f<int>(int) {}
        template <class T> using V = std::vector<T>;
        template <class T, std::enable_if_t<is_a<T>>* = nullptr> void g(T x = {}, T y = {});
        extern template class A<float>;
        template class A<double>;
        template <class T> concept C = true;
        """
    assert symbols(text) == [
        *("1 struct A?", "2 struct A", "3 variable is_a", "4 function f", "5 alias V", "6 function g?", "9 concept C"),
    ]


def test_variables_and_prototypes() -> None:
    text = """\
        extern int declared;
        const std::vector<int> list = {1, 2}, *other = nullptr;
        static Template text(R"(
        int in_a_string() { return 0; }
        )");
        int (*handler)(int) = nullptr;
        int f(int a, float b = 0), g;
        struct Point { int x; } origin;
        typedef struct { int a; } Pair, *PairPointer;
        struct Forward* pointer;
        """
    assert symbols(text) == [
        *("1 variable declared?", "2 variable list", "2 variable other", "3 variable text", "6 variable handler"),
        *("7 function f?", "7 variable g", "8 struct Point", "8 field Point::x", "8 variable origin"),
        *("9 field Pair::a", "9 alias Pair", "9 alias PairPointer", "10 variable pointer"),
    ]


def test_in_a_function_only_types_count() -> None:
    text = """\
        void outer(int parameter) {
          int local = 1;
          using Short = int;
          struct Hash { size_t operator()(int x) const { return x; } };
          enum Kind { kA };
          auto lambda = [](int q) { struct Deep { int d; }; return q; };
          void prototype();
        }
        auto closure = [](int q) { int inside = q; return inside; };
        """
    assert symbols(text) == [
        *("1 function outer", "4 struct outer::Hash", "4 method outer::Hash::operator()", "5 enum outer::Kind"),
        *("5 enumerator outer::Kind::kA", "6 struct outer::Deep", "6 field outer::Deep::d", "9 variable closure"),
    ]


def test_looks_again_after_what_it_does_not_understand() -> None:
    text = """\
        namespace a {
        template<size_t N> struct S<char[N]> { WEIRD stuff ( ; };
        @ ) ( this is = no C++ {{ ;
        int f();
        class B {
          int a;
        };
        }
        """
    parsed = read(text)
    assert parsed.errors != []
    found = [(one.kind, one.name, one.line) for one in parsed.symbols]
    assert ("function", "f", 4) in found
    assert ("class", "B", 5) in found
    assert ("field", "a", 6) in found


def test_members_after_an_error_belong_to_their_class() -> None:
    text = """\
        struct A {
          int first;
          int f(] = ;
          A(int x);
          int last;
        };
        int after;
        """
    found = symbols(text)
    assert {"2 field A::first", "4 method A::A?", "5 field A::last", "7 variable after"} <= set(found)
