// Package statement tells what a text of SQL is, by PostgreSQL's own grammar.
//
// Promises: Select says yes to one plain SELECT that names only functions known to do nothing but compute, and to nothing else. What it doesn't
// know, can't read in one way or can't parse is no select. A text that another database could read in another way (comments, backslashes,
// dollar quotes) is none either. The grammar is loaded at the first use, which takes a second or two and some tens of megabytes: Warm does that
// beforehand.
package statement

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/wasilibs/go-pgquery/parser"

	"sallyport.example/internal/display"
)

// MaxBytes is the length of the longest text that is looked at.
const MaxBytes = 64 << 10

// parsing bounds how many texts are parsed at a time: each parser takes memory of its own.
var parsing = make(chan struct{}, 2)

// dollar is a dollar sign that no parameter ($1) begins with.
var dollar = regexp.MustCompile(`\$(?:[^0-9]|$)`)

// Warm loads the grammar.
var Warm = sync.OnceFunc(func() { _, _ = parse("SELECT 1") })

// Select reports why a text is not one plain SELECT; nil: it is. None of the text's own words are in the error but the names of functions.
func Select(sql string) error {
	switch {
	case len(sql) > MaxBytes:
		return fmt.Errorf("it is longer than %d bytes", MaxBytes)
	case !utf8.ValidString(sql) || strings.ContainsRune(sql, 0):
		return errors.New("it is not plain text")
	}
	for _, odd := range []struct{ text, is string }{
		{"--", "a comment"}, {"/*", "a comment"}, {"*/", "a comment"}, {`\`, "a backslash"}, {"`", "a backquote"}, {"#", "a number sign"},
	} {
		if strings.Contains(sql, odd.text) {
			return fmt.Errorf("it has %s in it, which databases read in different ways", odd.is)
		}
	}
	if dollar.MatchString(sql) {
		return errors.New("it has a dollar quote in it, which databases read in different ways")
	}
	if quotedOtherwise(sql) {
		return errors.New("it has a quote in brackets or after q in it, which databases read in different ways")
	}
	tree, err := parse(sql)
	if err != nil {
		return errors.New("it can't be parsed")
	}
	var root struct {
		Stmts []struct {
			Stmt json.RawMessage `json:"stmt"`
		} `json:"stmts"`
	}
	if err := json.Unmarshal([]byte(tree), &root); err != nil || len(root.Stmts) == 0 {
		return errors.New("it can't be parsed")
	}
	if len(root.Stmts) > 1 {
		return errors.New("it is more than one statement")
	}
	var stmt map[string]any
	if err := json.Unmarshal(root.Stmts[0].Stmt, &stmt); err != nil || len(stmt) != 1 || stmt["SelectStmt"] == nil {
		return errors.New("it is another statement than SELECT")
	}
	return plain(stmt)
}

func parse(sql string) (tree string, err error) {
	parsing <- struct{}{}
	defer func() {
		<-parsing
		if p := recover(); p != nil { // the parser's machine gave up, as on what is nested too deeply
			err = errors.New("the parser failed")
		}
	}()
	return parser.ParseToJSON(sql)
}

// quotedOtherwise reports whether a text without comments and backslashes has a quote where another database ends or begins a text elsewhere: in
// brackets, which are quotes themselves to some, and after q, which lets others choose their quote.
func quotedOtherwise(sql string) bool {
	var quote rune
	inBrackets := false
	for i, r := range sql {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			if inBrackets || i > 0 && (sql[i-1] == 'q' || sql[i-1] == 'Q') {
				return true
			}
			quote = r
		case r == '[':
			inBrackets = true
		case r == ']':
			inBrackets = false
		}
	}
	return false
}

// plain walks a tree. Nodes stand under their names, which begin with a capital letter; members of nodes don't.
func plain(v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := plain(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) { // in one order, so that a text gets one answer
			member := v[name]
			switch {
			case name == "intoClause":
				return errors.New("it writes what it selects into a table")
			case name == "lockingClause":
				return errors.New("it locks what it selects")
			case name != "" && name[0] >= 'A' && name[0] <= 'Z' && !nodes[name]:
				if strings.HasSuffix(name, "Stmt") {
					return errors.New("it has another statement in it than SELECT")
				}
				return errors.New("it has something in it that is not known to be harmless")
			case name == "RangeVar":
				if node, _ := member.(map[string]any); place(node["relname"]) || place(node["schemaname"]) || place(node["catalogname"]) {
					return errors.New("it names a file or an address where a table is meant")
				}
			case name == "ResTarget" && order(member, "name") || (name == "alias" || name == "Alias") && order(member, "aliasname"):
				return errors.New("it gives something a name that is an order to another database")
			case name == "FuncCall":
				if err := harmless(member); err != nil {
					return err
				}
			case name == "A_Expr":
				if node, _ := member.(map[string]any); !operator(node["name"]) {
					return errors.New("it names an operator by its schema")
				}
			}
			if err := plain(member); err != nil {
				return err
			}
		}
	}
	return nil
}

// place tells whether a table's name is the place of a file or a URL, which some databases read as if it were a table.
func place(name any) bool {
	s, _ := name.(string)
	return strings.ContainsAny(s, `./:*?'"`)
}

// order tells whether a name given without AS is a statement of its own where statements need no semicolon between them.
func order(node any, member string) bool {
	m, _ := node.(map[string]any)
	s, _ := m[member].(string)
	return strings.EqualFold(s, "shutdown")
}

// operator tells whether an operator's name has no schema but PostgreSQL's own.
func operator(name any) bool {
	words := names(name)
	return len(words) == 1 || len(words) == 2 && words[0] == "pg_catalog"
}

func harmless(call any) error {
	node, _ := call.(map[string]any)
	words := names(node["funcname"])
	if len(words) == 2 && words[0] == "pg_catalog" {
		words = words[1:]
	}
	if len(words) != 1 || !functions[words[0]] {
		return fmt.Errorf("it calls %s, which is not known to do nothing but compute", display.Quote(strings.Join(words, "."), 64))
	}
	return nil
}

// names are the words of a name; nil where it is none.
func names(v any) (words []string) {
	list, _ := v.([]any)
	for _, e := range list {
		node, _ := e.(map[string]any)
		text, _ := node["String"].(map[string]any)
		word, ok := text["sval"].(string)
		if !ok {
			return nil
		}
		words = append(words, word)
	}
	return words
}

// nodes are the parts of a SELECT that only read. What is not here is refused, whatever a later grammar brings.
var nodes = set(`SelectStmt ResTarget ColumnRef A_Star A_Const A_Expr BoolExpr String Integer Float Boolean BitString FuncCall RangeVar JoinExpr
RangeSubselect RangeFunction SubLink SortBy TypeCast CaseExpr CaseWhen NullTest BooleanTest CoalesceExpr MinMaxExpr CommonTableExpr List WindowDef
GroupingSet GroupingFunc A_Indirection A_Indices A_ArrayExpr RowExpr ParamRef SQLValueFunction CollateClause NamedArgExpr TypeName Alias`)

// functions only compute from what they are given, or tell the time. They are PostgreSQL's, and those of the same name elsewhere.
var functions = set(`count sum avg min max array_agg string_agg bool_and bool_or every bit_and bit_or json_agg jsonb_agg json_object_agg jsonb_object_agg
stddev stddev_pop stddev_samp variance var_pop var_samp corr covar_pop covar_samp regr_slope regr_intercept regr_r2 regr_count mode percentile_cont
percentile_disc row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
abs ceil ceiling floor round trunc sign sqrt power pow exp ln log mod div random greatest least pi degrees radians sin cos tan asin acos atan atan2 width_bucket
lower upper initcap length char_length character_length octet_length bit_length substring substr left right trim ltrim rtrim btrim lpad rpad repeat replace
translate reverse split_part strpos position overlay concat concat_ws format ascii chr md5 sha256 encode decode to_hex quote_literal quote_ident starts_with
regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table regexp_count regexp_instr regexp_like regexp_substr like_escape
string_to_array array_to_string array_length array_upper array_lower array_position array_append array_prepend array_cat array_remove cardinality unnest
generate_series generate_subscripts coalesce nullif ifnull
now current_timestamp clock_timestamp statement_timestamp transaction_timestamp date_trunc date_part extract age to_char to_date to_timestamp to_number
make_date make_time make_timestamp make_timestamptz make_interval timezone justify_days justify_hours justify_interval date_bin isfinite
json_build_object jsonb_build_object json_build_array jsonb_build_array json_extract_path json_extract_path_text jsonb_extract_path
jsonb_extract_path_text json_array_length jsonb_array_length json_array_elements jsonb_array_elements json_array_elements_text
jsonb_array_elements_text json_each jsonb_each json_each_text jsonb_each_text json_object_keys jsonb_object_keys json_typeof jsonb_typeof
jsonb_pretty to_json to_jsonb row_to_json jsonb_set jsonb_path_query jsonb_path_exists
to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_rank ts_rank_cd ts_headline similarity unaccent
version current_database current_schema pg_typeof pg_size_pretty pg_table_size pg_total_relation_size pg_relation_size pg_get_viewdef pg_get_indexdef
pg_get_constraintdef obj_description col_description format_type has_table_privilege`)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
