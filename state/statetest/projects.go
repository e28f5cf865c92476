package statetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/roboco/sandboxd/state"
)

func runProjects(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := background(t)

	all, err := s.Projects(ctx)
	require.NoError(t, err)
	require.Empty(t, all)

	in := state.Project{
		Slug: "shop", Name: "The shop", Services: []string{"redis", "postgres", "redis"},
		Extensions: map[string][]string{"postgres": {"vector", "citext", "vector"}, "redis": {}},
	}
	made, created, err := s.PutProject(ctx, in)
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, "The shop", made.Name)
	require.Equal(t, []string{"postgres", "redis"}, made.Services, "registry order, once each")
	require.Equal(t, map[string][]string{"postgres": {"citext", "vector"}}, made.Extensions)
	require.Equal(t, []string{"vector", "citext", "vector"}, in.Extensions["postgres"], "the caller's map is the caller's")
	stored(t, made.CreatedAt)
	require.Equal(t, made.CreatedAt, made.UpdatedAt)

	got, err := s.Project(ctx, "shop")
	require.NoError(t, err)
	require.Equal(t, made, got)

	t.Run("what is returned is the caller's", func(t *testing.T) {
		got.Services[0], got.Extensions["postgres"][0] = "scribbled", "scribbled"
		again, err := s.Project(ctx, "shop")
		require.NoError(t, err)
		require.Equal(t, made, again)
	})

	t.Run("put replaces", func(t *testing.T) {
		again, created, err := s.PutProject(ctx, state.Project{Slug: "shop"})
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, "shop", again.Name, "the slug where no name is given")
		require.Nil(t, again.Services)
		require.Nil(t, again.Extensions)
		require.Equal(t, made.CreatedAt, again.CreatedAt)
		require.False(t, again.UpdatedAt.Before(made.UpdatedAt))
	})

	t.Run("patch changes what is set", func(t *testing.T) { patches(t, s) })

	t.Run("order is by bytes", func(t *testing.T) {
		for _, slug := range []string{"a-b", "ab", "a0", "a", "b", "0"} {
			_, _, err := s.PutProject(ctx, state.Project{Slug: slug})
			require.NoError(t, err)
		}
		all, err := s.Projects(ctx)
		require.NoError(t, err)
		var slugs []string
		for _, p := range all {
			slugs = append(slugs, p.Slug)
		}
		require.Equal(t, []string{"0", "a", "a-b", "a0", "ab", "b", "shop"}, slugs)
	})

	t.Run("delete", func(t *testing.T) {
		require.NoError(t, s.DeleteProject(ctx, "shop"))
		require.ErrorIs(t, s.DeleteProject(ctx, "shop"), state.ErrNotFound)
		_, err := s.Project(ctx, "shop")
		require.ErrorIs(t, err, state.ErrNotFound)
		require.ErrorContains(t, err, "shop")
		_, err = s.PatchProject(ctx, "shop", state.ProjectPatch{})
		require.ErrorIs(t, err, state.ErrNotFound)
		_, created, err := s.PutProject(ctx, state.Project{Slug: "shop"})
		require.NoError(t, err)
		require.True(t, created, "made anew")
	})

	t.Run("names that are no slugs are not found", func(t *testing.T) {
		for _, slug := range append(nasty(), "", "\x00", "\xff", strings.Repeat("a", 10_000)) {
			_, err := s.Project(ctx, slug)
			require.ErrorIs(t, err, state.ErrNotFound, "%q", slug)
			require.ErrorIs(t, s.DeleteProject(ctx, slug), state.ErrNotFound, "%q", slug)
			require.Less(t, len(err.Error()), 400)
		}
	})
}

func patches(t *testing.T, s state.Store) {
	ctx := background(t)
	base := state.Project{
		Slug: "patched", Name: "Before", Services: []string{"mongo"}, Extensions: map[string][]string{"redis": {"json"}},
	}
	name := "After"
	for title, c := range map[string]struct {
		patch state.ProjectPatch
		want  func(p *state.Project)
	}{
		"nothing":             {state.ProjectPatch{}, func(*state.Project) {}},
		"name":                {state.ProjectPatch{Name: &name}, func(p *state.Project) { p.Name = "After" }},
		"opt out":             {state.ProjectPatch{SetServices: true}, func(p *state.Project) { p.Services = nil }},
		"no service":          {state.ProjectPatch{SetServices: true, Services: []string{}}, func(p *state.Project) { p.Services = []string{} }},
		"services":            {state.ProjectPatch{SetServices: true, Services: []string{"mongo", "redis"}}, func(p *state.Project) { p.Services = []string{"redis", "mongo"} }},
		"services, not set":   {state.ProjectPatch{Services: []string{"redis"}}, func(*state.Project) {}},
		"bare":                {state.ProjectPatch{SetExtensions: true}, func(p *state.Project) { p.Extensions = nil }},
		"empty extensions":    {state.ProjectPatch{SetExtensions: true, Extensions: map[string][]string{}}, func(p *state.Project) { p.Extensions = nil }},
		"extensions":          {state.ProjectPatch{SetExtensions: true, Extensions: map[string][]string{"redis": {"search", "bloom"}}}, func(p *state.Project) { p.Extensions = map[string][]string{"redis": {"bloom", "search"}} }},
		"extensions, not set": {state.ProjectPatch{Extensions: map[string][]string{"nope": {"x"}}}, func(*state.Project) {}},
		"all three": {
			state.ProjectPatch{Name: &name, SetServices: true, SetExtensions: true},
			func(p *state.Project) { p.Name, p.Services, p.Extensions = "After", nil, nil },
		},
	} {
		t.Run(title, func(t *testing.T) {
			want, _, err := s.PutProject(ctx, base)
			require.NoError(t, err)
			got, err := s.PatchProject(ctx, "patched", c.patch)
			require.NoError(t, err)
			require.False(t, got.UpdatedAt.Before(want.UpdatedAt))
			c.want(&want)
			want.UpdatedAt = got.UpdatedAt
			require.Equal(t, want, got)
			read, err := s.Project(ctx, "patched")
			require.NoError(t, err)
			require.Equal(t, got, read)
		})
	}
	require.NoError(t, s.DeleteProject(ctx, "patched"))
}

func runProjectRules(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := background(t)

	t.Run("services", func(t *testing.T) {
		for title, c := range map[string]struct{ in, want []string }{
			"null":       {nil, nil},
			"empty":      {[]string{}, []string{}},
			"one":        {[]string{"mongo"}, []string{"mongo"}},
			"reordered":  {[]string{"mongo", "redis", "postgres"}, []string{"postgres", "redis", "mongo"}},
			"duplicates": {[]string{"redis", "redis"}, []string{"redis"}},
		} {
			got, _, err := s.PutProject(ctx, state.Project{Slug: "p", Services: c.in})
			require.NoError(t, err, title)
			require.Equal(t, c.want, got.Services, title)
			read, err := s.Project(ctx, "p")
			require.NoError(t, err)
			require.Equal(t, c.want, read.Services, "%s: read back", title)
		}
	})

	t.Run("extensions", func(t *testing.T) {
		type m = map[string][]string
		for title, c := range map[string]struct{ in, want m }{
			"null":                   {nil, nil},
			"empty":                  {m{}, nil},
			"empty lists":            {m{"postgres": {}, "redis": nil}, nil},
			"empty list of mongo":    {m{"mongo": {}}, nil},
			"sorted, once each":      {m{"postgres": {"vector", "uuid-ossp", "vector"}}, m{"postgres": {"uuid-ossp", "vector"}}},
			"empty beside full":      {m{"postgres": {"vector"}, "redis": {}}, m{"postgres": {"vector"}}},
			"of a service not opted": {m{"redis": {"json"}}, m{"redis": {"json"}}},
			"all":                    {Catalog().Features, m{"postgres": Catalog().Features["postgres"], "redis": Catalog().Features["redis"]}},
		} {
			got, _, err := s.PutProject(ctx, state.Project{Slug: "p", Services: []string{"postgres"}, Extensions: c.in})
			require.NoError(t, err, title)
			require.Equal(t, c.want, got.Extensions, title)
			read, err := s.Project(ctx, "p")
			require.NoError(t, err)
			require.Equal(t, c.want, read.Extensions, "%s: read back", title)
		}
	})

	t.Run("refusals", func(t *testing.T) { refusals(t, s) })
	t.Run("slugs", func(t *testing.T) { slugs(t, s) })
	t.Run("names", func(t *testing.T) { names(t, s) })
}

func refusals(t *testing.T, s state.Store) {
	ctx := background(t)
	type m = map[string][]string
	services := []string{"mongo", "postgres", "redis"}
	before, _, err := s.PutProject(ctx, state.Project{Slug: "kept", Services: []string{"redis"}})
	require.NoError(t, err)
	for title, c := range map[string]struct {
		in      state.Project
		field   string
		words   []string
		allowed []string
	}{
		"unknown service":       {state.Project{Services: []string{"redis", "mysql"}}, "sandbox_services", []string{`unknown service "mysql"`}, services},
		"unknown services":      {state.Project{Services: []string{"x", "redis", "y", "x"}}, "sandbox_services", []string{`unknown services "x", "y"`}, services},
		"case matters":          {state.Project{Services: []string{"Redis"}}, "sandbox_services", []string{`"Redis"`}, services},
		"empty name":            {state.Project{Services: []string{""}}, "sandbox_services", []string{`""`}, services},
		"unknown in extensions": {state.Project{Extensions: m{"mysql": {"a"}}}, "sandbox_extensions", []string{`unknown service "mysql"`}, services},
		"unknown, empty list":   {state.Project{Extensions: m{"mysql": {}}}, "sandbox_extensions", []string{`unknown service "mysql"`}, services},
		"feature outside":       {state.Project{Extensions: m{"postgres": {"vector", "plpython3u"}}}, "sandbox_extensions", []string{"postgres", `"plpython3u"`}, Catalog().Features["postgres"]},
		"another's feature":     {state.Project{Extensions: m{"redis": {"vector"}}}, "sandbox_extensions", []string{"redis", `"vector"`}, Catalog().Features["redis"]},
		"none for mongo":        {state.Project{Extensions: m{"mongo": {"search"}}}, "sandbox_extensions", []string{"mongo", `"search"`}, []string{}},
		"quoting":               {state.Project{Services: []string{`'; DROP TABLE sandboxd.projects; --`}}, "sandbox_services", []string{"DROP TABLE"}, services},
		"NUL":                   {state.Project{Services: []string{"\x00"}}, "sandbox_services", []string{`\x00`}, services},
	} {
		t.Run(title, func(t *testing.T) {
			c.in.Slug = "kept"
			_, _, err := s.PutProject(ctx, c.in)
			check := func(err error) {
				t.Helper()
				invalid := refused(t, err, c.field)
				require.Equal(t, c.allowed, invalid.Allowed)
				for _, w := range append(c.words, c.allowed...) {
					require.Contains(t, err.Error(), w)
				}
			}
			check(err)
			patch := state.ProjectPatch{SetServices: true, Services: c.in.Services, SetExtensions: true, Extensions: c.in.Extensions}
			_, err = s.PatchProject(ctx, "kept", patch)
			check(err)
			after, err := s.Project(ctx, "kept")
			require.NoError(t, err)
			require.Equal(t, before, after, "nothing was stored")
			c.in.Slug = "new-one"
			_, _, err = s.PutProject(ctx, c.in)
			check(err)
			_, err = s.Project(ctx, "new-one")
			require.ErrorIs(t, err, state.ErrNotFound)
		})
	}
	many := make([]string, 5000)
	for i := range many {
		many[i] = strings.Repeat("x", i)
	}
	_, _, err = s.PutProject(ctx, state.Project{Slug: "kept", Services: many})
	refused(t, err, "sandbox_services")
	require.Less(t, len(err.Error()), 2000, "the text stays readable")
}

func slugs(t *testing.T, s state.Store) {
	ctx := background(t)
	for _, slug := range []string{"a", "0", "a-", "a--b", "0-9", strings.Repeat("z", 40)} {
		require.True(t, state.ValidSlug(slug), slug)
		_, _, err := s.PutProject(ctx, state.Project{Slug: slug})
		require.NoError(t, err, slug)
		_, err = s.CreateAgent(ctx, slug, "qa", sum("token of "+slug))
		require.NoError(t, err, slug)
	}
	for _, slug := range append(nasty(), "", "-a", "A", "a_b", "a.b", "a b", "a/b", "ä", "a\n", "a\x00", strings.Repeat("z", 41)) {
		require.False(t, state.ValidSlug(slug), "%q", slug)
		_, _, err := s.PutProject(ctx, state.Project{Slug: slug})
		refused(t, err, "slug")
		_, err = s.CreateAgent(ctx, slug, "qa", sum("x"))
		refused(t, err, "slug")
	}
}

func names(t *testing.T, s state.Store) {
	ctx := background(t)
	good := map[string]string{
		"": "named", "   ": "named", " padded ": "padded", "Zürich 東京 🚀": "Zürich 東京 🚀",
		strings.Repeat("é", 200): strings.Repeat("é", 200), `'; DROP TABLE sandboxd.projects; --`: `'; DROP TABLE sandboxd.projects; --`,
		`\`: `\`, "$1": "$1", "e\u0301": "e\u0301",
	}
	for in, want := range good {
		got, _, err := s.PutProject(ctx, state.Project{Slug: "named", Name: in})
		require.NoError(t, err, "%q", in)
		require.Equal(t, want, got.Name)
		got, err = s.PatchProject(ctx, "named", state.ProjectPatch{Name: &in})
		require.NoError(t, err, "%q", in)
		require.Equal(t, want, got.Name)
	}
	for _, in := range []string{strings.Repeat("é", 201), "a\x00b", "\xff\xfe", "two\nlines"} {
		_, _, err := s.PutProject(ctx, state.Project{Slug: "named", Name: in})
		refused(t, err, "name")
		_, err = s.PatchProject(ctx, "named", state.ProjectPatch{Name: &in})
		refused(t, err, "name")
	}
}
