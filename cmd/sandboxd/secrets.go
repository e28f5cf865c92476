package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"

	"github.com/roboco/sandboxd/events/seal"
)

// redisTLS is what is needed to speak TLS with Redis beside its URL; nil where nothing is set.
func (c config) redisTLS() (*tls.Config, error) {
	if c.RedisCA == "" && c.RedisCert == "" {
		return nil, nil //nolint:nilnil // nothing is set, and that is no error
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.RedisCA != "" {
		pem, err := os.ReadFile(c.RedisCA)
		if err != nil {
			return nil, &settingError{"ROBOCO_REDIS_TLS_CA", err.Error()}
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &settingError{"ROBOCO_REDIS_TLS_CA", c.RedisCA + " holds no certificate"}
		}
	}
	if c.RedisCert != "" {
		pair, err := tls.LoadX509KeyPair(c.RedisCert, c.RedisKey)
		if err != nil {
			return nil, &settingError{"ROBOCO_REDIS_TLS_CERT", "certificate and key cannot be read: " + err.Error()}
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// secured makes the gateway's listener one of TLS where a certificate is set. It is read once: a new one is taken at the
// next start.
func (c config) secured(l net.Listener) (net.Listener, error) {
	if c.TLSCert == "" {
		return l, nil
	}
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, &settingError{"ROBOCO_SANDBOX_TLS_CERT", "certificate and key cannot be read: " + err.Error()}
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"},
	}), nil
}

// sealKeys are the keys that credentials are sealed with in Redis; nil for none.
func (c config) sealKeys() (*seal.Keys, error) {
	if c.SealKeys == "" {
		return nil, nil //nolint:nilnil // nothing is set, and that is no error
	}
	return seal.Parse(c.SealKeys)
}

// checkTLS judges what belongs together.
func (c config) checkTLS(must func(ok bool, name, problem string)) {
	must((c.RedisCert == "") == (c.RedisKey == ""), "ROBOCO_REDIS_TLS_CERT", "certificate and key (ROBOCO_REDIS_TLS_KEY) come together")
	must((c.TLSCert == "") == (c.TLSKey == ""), "ROBOCO_SANDBOX_TLS_CERT", "certificate and key (ROBOCO_SANDBOX_TLS_KEY) come together")
	if c.RedisCA != "" || c.RedisCert != "" {
		u, err := url.Parse(c.RedisURL)
		must(err == nil && u.Scheme == "rediss", "ROBOCO_REDIS_URL", "must begin with rediss:// where ROBOCO_REDIS_TLS_CA or ROBOCO_REDIS_TLS_CERT is set")
	}
}
